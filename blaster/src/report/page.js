'use strict';
(() => {
  // Returns a table as tab-separated values, which spreadsheets can paste.
  const text = table => [...table.rows].map(row =>
    [...row.cells].map(cell => cell.textContent.trim().replace(/\s+/g, ' ')).join('\t')).join('\n');
  const byHand = value => {
    const field = document.createElement('textarea');
    field.value = value;
    field.setAttribute('aria-hidden', 'true');
    field.style.position = 'fixed';
    field.style.opacity = '0';
    document.body.append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    return done ? Promise.resolve() : Promise.reject(new Error('not allowed'));
  };
  const copy = value => navigator.clipboard && navigator.clipboard.writeText
    ? navigator.clipboard.writeText(value).catch(() => byHand(value)) : byHand(value);
  for (const button of document.querySelectorAll('.copy')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const say = word => {
        button.textContent = word;
        setTimeout(() => { button.textContent = 'Copy'; }, 1500);
      };
      copy(text(button.parentElement.querySelector('table')))
        .then(() => say('Copied'), () => say('Not allowed here'));
    });
  }
  // Shows a hint above each table that is wider than its frame.
  const hint = () => {
    for (const table of document.querySelectorAll('.table')) {
      const scroll = table.querySelector('.scroll');
      table.querySelector('.hint').hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
    }
  };
  hint();
  addEventListener('resize', hint);
  document.addEventListener('toggle', hint, true);
  const theme = document.getElementById('theme');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });
})();
