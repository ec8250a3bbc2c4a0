#include "backends/cpu/bf16_products.h"

#include <atomic>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tracestep::cpu {
namespace {

#ifdef __x86_64__
// True if bits 17 and 18 of XCR0 are set: the system saves the configuration and data of tiles.
bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsxsave = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3U) == 3U;
}

TileSupport ask_for_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return TileSupport::kNone;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return TileSupport::kNone;
  if (!system_saves_tiles()) return TileSupport::kRefused;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  const bool is_granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_granted ? TileSupport::kGranted : TileSupport::kRefused;
}

Bf16Products choose() {
  // Kernels of tiles and of pairs are among those for AVX-512.
  if (!__builtin_cpu_supports("avx512f")) return Bf16Products::kWidened;
  if (tile_support() == TileSupport::kGranted) return Bf16Products::kTiles;
  // Processors of Intel begin a multiplication of pairs every other cycle or later, so that its
  // products come at no more than half the rate of float32.
  const bool pays = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
  return pays ? Bf16Products::kPairs : Bf16Products::kWidened;
}
#else
TileSupport ask_for_tiles() {
  return TileSupport::kNone;
}
Bf16Products choose() {
  return Bf16Products::kWidened;
}
#endif

std::atomic<Bf16Products>& way() {
  static std::atomic<Bf16Products> chosen = choose();
  return chosen;
}

}  // namespace

TileSupport tile_support() {
  static const TileSupport support = ask_for_tiles();
  return support;
}

Bf16Products bf16_products() {
  return way().load(std::memory_order_relaxed);
}

WithBf16Products::WithBf16Products(Bf16Products way_now) : before_{way().exchange(way_now)} {}

WithBf16Products::~WithBf16Products() {
  way().store(before_);
}

}  // namespace tracestep::cpu
