//! Simulates kernels and drivers that lack a feature, to test the code that then runs instead.
//!
//! Where: while a port is opened. In a program with debug assertions, the environment variable
//! `HYPOSTYLE_XDP_LACKS` names the feature to refuse; in any other program nothing is refused.
//! Invariant: a simulated refusal has the kernel's own error; the kernel is not called.
//! Source: `net/xdp/xdp_umem.c` and `net/xdp/xsk.c` of Linux, `xdp_umem_reg`, `xsk_bind`,
//! `xsk_build_skb_zerocopy`.

/// A feature whose lack can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Metadata before a frame, which kernels before 6.8 do not support.
    Metadata,
    /// Checksums computed by the kernel. Kernels before 6.18 accept metadata but ignore them if the
    /// driver sends pages in place (`IFF_TX_SKB_NO_LINEAR`); our code then computes the checksums.
    Sums,
    /// Frames in several descriptors, which kernels before 6.6 and many zero-copy drivers lack.
    Parts,
    /// Copies of packets by the kernel, which makes none if the driver uses our memory directly.
    Copies,
}

impl Lack {
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
