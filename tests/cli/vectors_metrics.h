/* Made by gen_metrics.py; do not edit. */
#include <stdint.h>
enum { ROWS = 12, COLS = 7 };
static const double want[] = {-0x1.9a96c17a324a9p+0, -0x1.530930ee62e3ep+1, -0x1.fca504a3d846ap-2, 0x1.ae89324d005b8p-1,
    0x1.22d3f20fc6f7bp+1, 0x1.c15b7f53fc3e3p-3, -0x1.1af496efd9acfp+0, -0x1.91cebb117e6e3p+0,
    0x1.7f5b9b0ca5927p+0, 0x1.a28124398ffcfp+1, 0x1.1750b2ae7dfcdp-1, -0x1.3bbb6d653b45fp+1,
    -0x1.eaa1bcac7c462p+0, 0x1.999ad9dc3a15fp+1, 0x1.9f80d437564cdp-2, -0x1.bb6d30648a45fp+1,
    -0x1.56d1d1af2e6eap-3, -0x1.29c92d69cd8ecp+1, -0x1.42320c8f835a5p+0, -0x1.f3b7cc6ced37dp-1,
    -0x1.6d376905eb829p+0, 0x1.1b546c40f4ad3p+0, -0x1.02666fa4167ddp-3, -0x1.2dc9ef10faf83p+0,
    0x1.a378193111c0fp-1, 0x1.a8e2cb787b18ep+0, -0x1.a49d2dfec0447p+1, -0x1.06e443228d0cdp-1,
    -0x1.f6248477b1ebcp+0, -0x1.629f34df4fc70p-2, -0x1.4a1758d42839ap+1, 0x1.52fdcd6ee651dp-5,
    -0x1.365c28589ba19p-4, -0x1.37a450bd38387p-1, -0x1.0c44e9541a607p+1, -0x1.95b2eb017e538p-1,
    -0x1.176154b5f6718p+1, -0x1.5aeef5dc33d86p+1, 0x1.cc5c764c2e616p-2, -0x1.1bfe5b871023fp+1,
    0x1.2b9886793273ap+1, 0x1.6ee493c5640f3p+0, -0x1.ff70ea2d79751p+1, 0x1.16a8f349b244dp-1,
    -0x1.1a0a19d4eb851p+1, 0x1.0ece03ef3efb3p-4, 0x1.656eeba4a3aedp-4, -0x1.fd09bc0ed8496p+1,
    -0x1.de0ca0cdca455p-2, -0x1.05edd26e03463p-1, 0x1.ec8b556e005b6p+0, -0x1.2e734c4a22b2bp+1,
    0x1.79e0a0aca6649p+0, -0x1.1956476c6fa5cp+1, -0x1.533deb766f660p-1, -0x1.ae527fc713ea4p+0,
    0x1.72e00dc29c4a4p+1, 0x1.22ecd3d17fbf0p+0, 0x1.374302ba2b92bp+2, 0x1.48a9437dd9c19p+0,
    0x1.b0a2e3395cecep+0, 0x1.ae6dfc67bbd3dp+0, -0x1.3695c9883738ap+0, -0x1.1ed626019fe03p-3,
    0x1.59b315b7d87bcp+1, -0x1.9611675e7c9c0p-1, 0x1.82a9542329c62p-2, -0x1.5bb9a5199d0b3p-5,
    0x1.37eb3961cd067p+0, -0x1.75aaa322c0fdfp-1, -0x1.3809828af08b7p-2, 0x1.f065acaa6fe89p-2,
    0x1.a5fb9728838e2p-3, -0x1.baddb5326c66fp+0, 0x1.caa413359eba8p+0, -0x1.4c6943b3e41c0p+1,
    -0x1.337c4f00d4077p+1, -0x1.485161dbcc72fp+1, 0x1.ef16fd9450413p+0, -0x1.714351fc5856bp-1,
    -0x1.f12bae21f2d15p+0, -0x1.22d24c4f99d1cp+1, 0x1.af3d003ae9cb6p-1, -0x1.0e0a09a443451p+1};
static const double got[] = {-0x1.fc48d4bf4b24ap+0, -0x1.3b7564cbe524dp+1, -0x1.b622f8bc9eb5ep-1, 0x1.7d02699986819p-1,
    0x1.22917a169410ep+1, 0x1.5f7c99f7bc3aap-4, -0x1.1f1c1ec2a3acbp+0, -0x1.2afd5f6aefb4ap+0,
    0x1.57a90d98632c5p+0, 0x1.7225a5fe1cc33p+1, -0x1.678a7d376e180p-8, -0x1.43985c3380479p+1,
    -0x1.02d7b2212b0d0p+1, 0x1.a3c8ccf89638ep+1, 0x1.10e3261139431p-2, -0x1.cdce65865a5e7p+1,
    -0x1.88ff7cf81c31cp-2, -0x1.3dbe9fb56b3d9p+1, -0x1.35e3dd247079bp+0, -0x1.1711f02bc36aap+0,
    -0x1.6580a4a000191p+0, 0x1.1b546c40f4ad3p+0, -0x1.02666fa4167ddp-3, -0x1.2dc9ef10faf83p+0,
    0x1.a378193111c0fp-1, 0x1.a8e2cb787b18ep+0, -0x1.a49d2dfec0447p+1, -0x1.06e443228d0cdp-1,
    -0x1.f4c964de42a9fp+0, -0x1.0fcefaf739198p-1, -0x1.626afe3da058ap+1, -0x1.06ceedfe104dfp-2,
    -0x1.f67677d8b4c0dp-5, -0x1.26f1773c59f1ap-2, -0x1.18c04db82ef7cp+1, 0x1.6ee493c5640f3p+0,
    0x1.2b9886793273ap+1, -0x1.1bfe5b871023fp+1, 0x1.cc5c764c2e616p-2, -0x1.5aeef5dc33d86p+1,
    -0x1.176154b5f6718p+1, -0x1.95b2eb017e538p-1, -0x1.0003963ffceb4p+2, 0x1.594d2762eaf4ep-1,
    -0x1.2e73d76b2aab1p+1, 0x1.51a3cd1b93c1dp-4, 0x1.3738879f2ea0cp-2, -0x1.f1a66b3e5433bp+1,
    -0x1.a6633fd54e8d6p-3, -0x1.7e1e0452fe7b0p-2, 0x1.0902f53598ec1p+1, -0x1.d09d824d10d0ep+0,
    0x1.a9bcaf69d6c5ep+0, -0x1.145d86a68cb32p+1, -0x1.cc6396478866ap-2, -0x1.f4e934b543901p+0,
    0x1.65e847d707569p+1, 0x1.5fd82f19ae28cp+0, 0x1.435f7414be8c8p+2, 0x1.bf934b0d3353bp+0,
    0x1.b170cbb45f29cp+0, 0x1.3e1f73a4f7a55p+0, -0x1.4212b5a538bb5p-1, 0x1.80a306fce541dp-3,
    0x1.310b45b9fd283p+1, -0x1.857ba1abe18cfp-2, 0x1.8c9d96a46de15p-2, -0x1.2c5a2f3002817p-1,
    0x1.17a2bad2394b6p+0, -0x1.c3d58cdd0a8d9p-1, 0x1.6157c29dafc84p-3, 0x1.fa25b71da518cp-3,
    0x1.0a29083234fb6p-3, -0x1.d01f0bf2b025fp+0, 0x1.ad892ad6b38f2p+0, -0x1.6f82fa65a12dap+1,
    -0x1.2b1298be70f1ap+1, -0x1.1ef7f63cb835cp+1, 0x1.0f8171f6f07b6p+1, -0x1.ffba11caabd7cp-1,
    -0x1.24bcfd29fd4f7p+1, -0x1.1e40bd8f57a01p+1, 0x1.42b5236a0dac2p-1, -0x1.263cd16c317dfp+1};
static const int64_t labels[] = {5, 6, 0, 4, 5, 2, 1, 1, 2, 1, 4, 1};
static const double max_abs[] = {0x1.217ced9794729p+2};
static const double mean_abs[] = {0x1.5c5c5db074bc4p-2};
static const double worst[] = {0x1.141a7eaca17c9p+2};
static const double cosine[] = {0x1.ce4974984804ap-1};
static const double sqnr[] = {0x1.c68cd49a5520cp+2};
static const double divergence[] = {0x1.1fc4b148fda77p-2};
static const double accuracy[] = {0x1.8000000000000p-1};
static const double agreement[] = {0x1.8000000000000p-1};
static const double clipped[] = {0x1.aaaaaaaaaaaabp-2};
