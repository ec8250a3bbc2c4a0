// How products of bfloat16 are multiplied on this machine: by what the processor has and the kernel
// permits, asked once in a process, and never by the number of threads. Widths of vectors are the
// choice of targets.h.
#pragma once

#include <cstdint>

namespace tracestep::cpu {

enum class Bf16Products : std::uint8_t {
  kWidened,       // to float32, while they are packed
  kPairs,         // AVX512-BF16, where it is faster than that
  kTiles,         // AMX
  kEmulatedTiles  // the same arithmetic in plain code, slow: only where a test asks for it
};

// The way of this process.
Bf16Products bf16_products();

// Says whether tiles of bfloat16 can be multiplied here (AMX), and if not, why.
enum class TileSupport : std::uint8_t {
  kNone,     // the processor does not say that it can
  kRefused,  // it can, but the kernel, or the host of a virtual machine, does not let us
  kGranted
};
// Asks the kernel for the permission the first time. It holds for all threads of the process and
// for its children.
TileSupport tile_support();

// For a test: while it lives, products prepared by any thread are multiplied in this way. One at a
// time; the processor must be able to.
class WithBf16Products {
 public:
  explicit WithBf16Products(Bf16Products way);
  ~WithBf16Products();
  WithBf16Products(const WithBf16Products&) = delete;
  WithBf16Products& operator=(const WithBf16Products&) = delete;

 private:
  Bf16Products before_;
};

}  // namespace tracestep::cpu
