//! Kernels and drivers that cannot do what this one can, for tests of what is done there.
//!
//! Where: under opening. In a program with debug assertions the environment variable
//! `HYPOSTYLE_XDP_LACKS` names what is refused; in any other nothing is.
//! Invariant: what is refused is refused in the kernel's own words, and the kernel is not asked.
//! Source: `net/xdp/xdp_umem.c` and `net/xdp/xsk.c` of Linux, `xdp_umem_reg`, `xsk_bind`,
//! `xsk_build_skb_zerocopy`.

/// What may be lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// A kernel before 6.8 does not know of metadata before a frame.
    Metadata,
    /// A kernel before 6.18 takes metadata and ignores them, where the driver sends pages as they
    /// lie (`IFF_TX_SKB_NO_LINEAR`), and is none of those that were seen to heed them.
    Sums,
    /// A kernel before 6.6 does not know of frames in several descriptors, and many a driver that
    /// uses our memory itself does not either.
    Parts,
    /// A driver that uses our memory itself does not copy.
    Copies,
}

impl Lack {
    /// True if tests want it so.
    pub(super) fn is_planted(self) -> bool {
        let name = match self {
            Lack::Metadata => "metadata",
            Lack::Sums => "sums",
            Lack::Parts => "parts",
            Lack::Copies => "copies",
        };
        cfg!(debug_assertions)
            && std::env::var_os("HYPOSTYLE_XDP_LACKS").is_some_and(|lack| lack == name)
    }
}
