// Tiles of 16-bit numbers in shared memory as the copy engine writes them and the matrix units read
// them: columns in panels of one swizzle width, panels one after the other, each [row][column].
// Bits 4..6 of an address are xored with bits 7..9 (as many as the swizzle width has), so that
// neither eight rows of a column nor eight columns of a row meet in one bank.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// Returns the widest swizzle whose panels divide a row of D elements: 128, 64 or 32 bytes.
constexpr int swizzle_bytes(int width) {
  return width % 64 == 0 ? 128 : width % 32 == 0 ? 64 : 32;
}

template <int kRows, int kWidth>
struct Tile {
  static constexpr int kSwizzle = swizzle_bytes(kWidth);
  static constexpr int kColumns = kSwizzle / 2;  // columns of a panel
  static constexpr int kPanels = kWidth / kColumns;
  static constexpr int kPanelBytes = kRows * kSwizzle;
  static constexpr int kBytes = kPanels * kPanelBytes;
  static_assert(kWidth % kColumns == 0 && kRows % 8 == 0);

  // The swizzle mode in a matrix descriptor (PTX, "Matrix Descriptor Format": the address, two
  // strides in 16-byte units, and the mode): 1 for 128 bytes, 2 for 64, 3 for 32.
  static constexpr std::uint64_t kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
  // Returns the address as a descriptor has it: without the bits from 2^18 on, which name a block
  // of the cluster, and in units of 16 bytes.
  static __device__ __forceinline__ std::uint64_t place(std::uint32_t address) {
    return (address & 0x3FFFF) >> 4;
  }
  // Return the descriptor of an operand whose K axis runs along a row, or down the rows.
  static __device__ __forceinline__ std::uint64_t along_rows(std::uint32_t address) {
    return (kMode << 62) | (std::uint64_t{8 * kSwizzle / 16} << 32) | (std::uint64_t{1} << 16) |
           place(address);
  }
  static __device__ __forceinline__ std::uint64_t down_rows(std::uint32_t address) {
    return (kMode << 62) | (std::uint64_t{8 * kSwizzle / 16} << 32) |
           (std::uint64_t{kPanelBytes / 16} << 16) | place(address);
  }
  // Return what to add to a descriptor to get `step` times 16 columns (along) or rows (down) on.
  static constexpr int along_step(int step) {
    return (step * 16 / kColumns * kPanelBytes + step * 16 % kColumns * 2) / 16;
  }
  static constexpr int down_step(int step) { return step * 16 * kSwizzle / 16; }

  // Returns the byte offset in the tile of the eight columns number `chunk` of row `row`.
  static __device__ __forceinline__ int offset(int row, int chunk) {
    constexpr int kChunks = kColumns / 8;
    const int twist = row / (128 / kSwizzle) % kChunks;
    return chunk / kChunks * kPanelBytes + row * kSwizzle + ((chunk % kChunks) ^ twist) * 16;
  }
};

// load_tile() copies rows of a head to a tile, whose bytes count on `barrier`, and store_tile() 64
// rows of a tile back; both by the copy engine, a box of the tensor for each panel.
template <class TileOf>
__device__ __forceinline__ void load_tile(std::uint32_t tile, const CUtensorMap* map,
                                          std::uint32_t barrier, int row, int head, int batch) {
#pragma unroll
  for (int i = 0; i < TileOf::kPanels; ++i)
    load_box(tile + i * TileOf::kPanelBytes, map, barrier, i * TileOf::kColumns, row, head, batch);
}
template <class TileOf>
__device__ __forceinline__ void store_tile(const CUtensorMap* map, std::uint32_t tile, int row,
                                           int head, int batch) {
#pragma unroll
  for (int i = 0; i < TileOf::kPanels; ++i)
    store_box(map, tile + i * TileOf::kPanelBytes, i * TileOf::kColumns, row, head, batch);
}

// Stores 64 x (8 kChunks) accumulators of a warpgroup, rounded to T, to rows row0.. of a tile.
template <class T, class TileOf, int kChunks, int K>
__device__ __forceinline__ void store_fragment(std::uint32_t tile, const float (&d)[K], int row0,
                                               int thread) {
  static_assert(kChunks % 2 == 0);
  const int lane = thread % 32;
  const int row = row0 + thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < kChunks; j += 2) {
    const float* x = d + 4 * j;
    store_matrices(tile + TileOf::offset(row, j + lane / 16), pack<T>(x[0], x[1]),
                   pack<T>(x[2], x[3]), pack<T>(x[4], x[5]), pack<T>(x[6], x[7]));
  }
}

}  // namespace tracestep::cuda
