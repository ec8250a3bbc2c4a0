// How products of bfloat16 are computed on this machine. It depends on what the processor has and
// the kernel permits, is determined once in a process, and never depends on the number of threads.
// targets.h chooses the width of vectors.
#pragma once

#include <cstdint>

namespace tracestep::cpu {

enum class Bf16Products : std::uint8_t {
  kWidened,  // Operands are widened to float32 while they are packed.
  kPairs,    // By AVX512-BF16, if that is faster.
  kTiles,    // AMX
  // The arithmetic of tiles in plain code, which is slow: only if a test asks for it.
  kEmulatedTiles
};

// Returns how this process computes products of bfloat16.
Bf16Products bf16_products();

// Whether tiles of bfloat16 can be multiplied here (AMX), and if not, why.
enum class TileSupport : std::uint8_t {
  kNone,  // The processor does not report them.
  // The processor has them, but the kernel, or the host of a virtual machine, does not permit their
  // use.
  kRefused,
  kGranted
};
// Returns whether tiles can be used. The first call asks the kernel for permission, which then
// holds for all threads of the process and for its children.
TileSupport tile_support();

// For tests: while this object exists, products that any thread prepares use this way. One at a
// time; the processor must support it.
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
