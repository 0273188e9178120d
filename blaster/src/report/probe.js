// The tests of browser.rs run this script in a browser.
'use strict';
(() => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(one => {
      const share = one / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const meet = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const look = frame => {
    const window_ = frame.contentWindow;
    const page = frame.contentDocument;
    const root = page.documentElement;
    // Returns the computed value of a colour of the style sheet.
    const colour = name => {
      const probe = page.createElement('i');
      probe.style.color = `var(--${name})`;
      page.body.append(probe);
      const found = window_.getComputedStyle(probe).color;
      probe.remove();
      return found;
    };
    const faint = [];
    const paper = [];
    const check = theme => {
      paper.push(colour('paper'));
      const grounds = { paper: colour('paper'), shade: colour('shade'), mark: colour('mark') };
      for (const name of ['ink', 'faint', 'good', 'warn', 'bad', 'link']) {
        for (const [ground, behind] of Object.entries(grounds)) {
          if (ground === 'mark' && name !== 'ink') continue;
          const found = contrast(colour(name), behind);
          if (found < 4.5) faint.push(`${theme}: ${name} on ${ground} ${found.toFixed(2)}`);
        }
      }
      for (let kind = 0; kind < 8; kind++) {
        const found = contrast(colour(`k${kind}`), grounds.paper);
        if (found < 3) faint.push(`${theme}: line ${kind} ${found.toFixed(2)}`);
      }
    };
    const name = one => `${one.tagName}.${one.getAttribute('class')} ${one.textContent.slice(0, 40)}`;
    const all = [...page.body.querySelectorAll('*')];
    const outside = all.filter(one => !one.closest('.scroll table, pre, svg') && !one.closest('script'))
      .filter(one => one.getBoundingClientRect().right > root.clientWidth + 1).map(name);
    const overlapping = [];
    for (const svg of page.querySelectorAll('figure > svg')) {
      const texts = [...svg.querySelectorAll('text')];
      const boxes = texts.map(text => text.getBoundingClientRect());
      for (let one = 0; one < texts.length; one++) {
        const frame_ = svg.getBoundingClientRect();
        const box = boxes[one];
        if (box.left < frame_.left - 2 || box.right > frame_.right + 2) overlapping.push(`cut: ${name(texts[one])}`);
        for (let other = 0; other < one; other++) {
          if (meet(boxes[one], boxes[other])) overlapping.push(`${name(texts[one])} on ${name(texts[other])}`);
        }
      }
    }
    const pictures = [...page.querySelectorAll('svg[role=img]')];
    const nameless = pictures.filter(svg => !(svg.getAttribute('aria-labelledby') || '').split(' ')
      .every(id => (page.getElementById(id) || { textContent: '' }).textContent.trim())).map(name);
    for (const button of page.querySelectorAll('button')) {
      if (!button.textContent.trim() || button.hidden) nameless.push(name(button));
    }
    // A name that is broken after each letter makes its row as tall as the name is long.
    const tall = [...page.querySelectorAll('th')].filter(one => one.closest('details, #overview') === null)
      .filter(one => one.getBoundingClientRect().height > 170).map(name);
    const lines = [...page.querySelectorAll('figure > svg .line')]
      .filter(line => line.getTotalLength() > 10).length;
    const letters = [...page.querySelectorAll('figure > svg text')].map(text => {
      const svg = text.ownerSVGElement;
      const size = parseFloat(window_.getComputedStyle(text).fontSize);
      return size * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    });
    // Collects the words of row headings that are broken over two lines.
    const torn = [];
    for (const cell of page.querySelectorAll('tbody th')) {
      if (cell.closest('details') || cell.closest('#types, #cpus, #capacity')) continue;
      const text = (cell.querySelector('a') || cell).firstChild;
      for (const word of text.data.matchAll(/\S+/g)) {
        const range = page.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
        // Words with a dot or the like may be broken: they are names of settings.
        if (tops.size > 1 && /^[A-Za-zµ/]+$/.test(word[0])) torn.push(word[0]);
      }
    }
    const scrolling = [...page.querySelectorAll('section')].filter(section => {
      const scroll = section.querySelector('.scroll');
      return scroll && scroll.scrollWidth > scroll.clientWidth + 1;
    }).map(section => section.id);
    check('first');
    page.getElementById('theme').click();
    check('second');
    const first = page.querySelector('#glance, #overview');
    first.querySelector('.copy').click();
    return {
      conclusion_end: page.querySelector('.conclusion').getBoundingClientRect().bottom + window_.scrollY,
      glance_top: first.getBoundingClientRect().top + window_.scrollY,
      wrong: window_.wrong, outside, overlapping, tall, torn, scrolling, nameless, faint, paper, lines,
      page_width: root.scrollWidth, letter_px: Math.min(...letters),
      figures: [...page.querySelectorAll('figure')].map(figure => figure.id),
      copied: window_.copied.join('\n--\n'),
    };
  };
  addEventListener('load', () => {
    let told;
    try {
      told = [...document.querySelectorAll('iframe')].map(look);
    } catch (error) {
      told = [{ wrong: [String(error.stack)] }];
    }
    document.getElementById('probe').textContent = JSON.stringify(told);
  });
})();
