//! A file's bytes, decompressed if they are compressed with zstd.
//!
//! Where: `trace` reads files through this module. Invariant: a file may have many zstd frames; a
//! damaged frame is an error.

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, BufRead, Read};

/// The first bytes of a zstd file.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A reader of a file's decompressed bytes.
pub enum DecompressingReader<R: BufRead> {
    /// The file is not compressed.
    Plain(R),
    /// The reader is in a zstd frame.
    Frame(Box<StreamingDecoder<R, FrameDecoder>>),
    /// The reader has reached the end of the last zstd frame.
    End,
}

impl<R: BufRead> DecompressingReader<R> {
    /// Makes a reader according to the file's first bytes.
    ///
    /// # Errors
    /// The bytes cannot be read, or begin a damaged frame.
    pub fn new(mut source: R) -> io::Result<DecompressingReader<R>> {
        if source.fill_buf()?.starts_with(&ZSTD_MAGIC) {
            DecompressingReader::frame(source)
        } else {
            Ok(DecompressingReader::Plain(source))
        }
    }

    fn frame(source: R) -> io::Result<DecompressingReader<R>> {
        let frame = StreamingDecoder::new(source).map_err(io::Error::other)?;
        Ok(DecompressingReader::Frame(Box::new(frame)))
    }
}

impl<R: BufRead> Read for DecompressingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // A zstd frame may be empty. The loop ends, because each frame consumes bytes of the file.
        loop {
            let frame = match self {
                DecompressingReader::Plain(source) => return source.read(out),
                DecompressingReader::End => return Ok(0),
                DecompressingReader::Frame(frame) => frame,
            };
            let got = frame.read(out)?;
            if got > 0 || out.is_empty() {
                return Ok(got);
            }
            if let DecompressingReader::Frame(frame) =
                std::mem::replace(self, DecompressingReader::End)
            {
                let mut source = frame.into_inner();
                if !source.fill_buf()?.is_empty() {
                    *self = DecompressingReader::frame(source)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    #[test]
    fn packed_and_plain_files_are_the_same() {
        let text: String = (0..5000).map(|line| format!("{line},key-{}\n", line * line)).collect();
        let packed = |text: &str| compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        let frames = [packed(&text[..80]), packed(""), packed(&text[80..])].concat();
        for bytes in [text.as_bytes().to_vec(), packed(&text), frames.clone()] {
            let mut read = String::new();
            DecompressingReader::new(bytes.as_slice()).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
        let cut = &frames[..frames.len() - 20];
        assert!(DecompressingReader::new(cut).unwrap().read_to_end(&mut Vec::new()).is_err());
    }
}
