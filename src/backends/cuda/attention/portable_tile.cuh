// Tiles of the portable forward and backward kernels: tensors as the kernels see them, tiles loaded
// to shared memory, the two products on tiles (rows times rows, probabilities times rows), and
// results stored from fragments.
#pragma once

#include <cmath>

#include "backends/cuda/attention/mma.cuh"
#include "backends/cuda/attention/portable_params.h"

namespace tracestep::cuda::portable {

// Returns the exponent of two by which float32 operands are scaled before they become 16-bit parts:
// it brings the largest magnitude of a head to [2^14, 2^15), the top of float16's narrow range.
__host__ __device__ inline int scale_exponent(std::uint32_t magnitude_bits) {
  const int exponent = 141 - static_cast<int>(magnitude_bits >> 23);
  return exponent > 126 ? 126 : exponent;
}

// Returns an exponent e such that 2^e exceeds the square root of the float with these bits.
__host__ __device__ inline int root_exponent(std::uint32_t squares_bits) {
  const int exponent = static_cast<int>(squares_bits >> 23) - 127;
  return ((exponent < -140 ? -140 : exponent) >> 1) + 1;
}

// True if scores, as exponents of two, may be so large that the last bits of their sums matter.
// They are at most the product of the longest rows of Q and K; normal data stay far below.
__device__ __forceinline__ bool has_large_scores(float scale, const HeadRange& range) {
  const int exponent = root_exponent(range.squares[kQ]) + root_exponent(range.squares[kK]);
  return ldexpf(fabsf(scale), exponent) > 512;
}

template <class E>
__device__ __forceinline__ const E* head_start(const TileView& view, int batch, int head) {
  return static_cast<const E*>(view.data) + batch * view.strides.batch + head * view.strides.head;
}

// Copies a tile element by element, for rows that do not start at multiples of 16 bytes.
template <int kD, int kRows, int kThreads, int kParts, class E>
__device__ __forceinline__ void load_unaligned_tile(std::uint32_t tile, const E* head,
                                                    const TileView& view, int first, int width,
                                                    int thread) {
  using Layout = TileLayout<kD>;
#pragma unroll 1
  for (int index = thread; index < kParts * kRows * Layout::kChunks; index += kThreads) {
    const int line = index / Layout::kChunks, chunk = index % Layout::kChunks;
    const int part = line / kRows, row = line % kRows;
    const int count = first + row < view.rows ? width - chunk * 8 : 0;
    const auto* bits = reinterpret_cast<const std::uint16_t*>(
        head + part * view.plane + (first + row) * view.strides.row + chunk * 8);
    std::uint32_t words[4] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < count) words[e / 2] |= std::uint32_t{bits[e]} << (e % 2 * 16);
    }
    store_shared(tile + part * (kRows * Layout::kPitch) + Layout::offset(row, chunk),
                 make_uint4(words[0], words[1], words[2], words[3]));
  }
}

// Loads rows first .. first + kRows of a head to a tile; elements outside the tensor become zero.
template <int kD, int kRows, int kThreads, int kParts, class E>
__device__ __forceinline__ void load_tile(std::uint32_t tile, const E* head, const TileView& view,
                                          int first, int width, int thread) {
  using Layout = TileLayout<kD>;
  if (kParts == 1 && !view.is_aligned) {  // parts were written by us, aligned
    load_unaligned_tile<kD, kRows, kThreads, kParts>(tile, head, view, first, width, thread);
    return;
  }
  // A thread copies one chunk of every kRowStep-th row; the threads left over have nothing to do.
  constexpr int kRowStep = kThreads / Layout::kChunks;
  constexpr int kSteps = (kRows + kRowStep - 1) / kRowStep;
  const int row = thread / Layout::kChunks, chunk = thread % Layout::kChunks;
  // Parts are dense and padded, so their pitch is a compile-time constant.
  const std::int64_t pitch = kParts == 2 ? kD : view.strides.row;
  const int elements = kParts == 2 ? 8 : width - chunk * 8;  // of this chunk
  const int bytes = 2 * (elements < 0 ? 0 : elements > 8 ? 8 : elements);
  const int rows_left = view.rows - first - row;
  const E* from = head + (first + row) * pitch + (bytes > 0 ? chunk * 8 : 0);
  const std::int64_t step = pitch * kRowStep;
  if (kThreads % Layout::kChunks != 0 && row >= kRowStep) return;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (kRows % kRowStep != 0 && row + i * kRowStep >= kRows) break;
    const bool is_inside = i * kRowStep < rows_left;
    const E* source = is_inside ? from : head;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      copy_async(tile + part * (kRows * Layout::kPitch) + Layout::offset(row + i * kRowStep, chunk),
                 source + part * view.plane, is_inside ? bytes : 0);
    }
    from += step;
  }
}

// Adds acc[16 kMT rows, kN columns] += X Y^T, both read along kD. `x` is the address of the warp's
// first row, kXPlane and kYPlane are bytes from part to part. With two parts the product of the two
// low ones is left out: it is below 2^-24 of the whole. kSwapped takes the low part of Y first, so
// that X Y^T and Y X^T are the same bits.
template <class E, int kParts, int kD, int kMT, int kN, int kXPlane, int kYPlane, bool kSwapped>
__device__ __forceinline__ void multiply_rows(float (&acc)[kMT][kN / 8][4], std::uint32_t x,
                                              std::uint32_t y, const LaneOffsets<kD>& lanes) {
  constexpr int kPitch = TileLayout<kD>::kPitch;
#pragma unroll
  for (int ks = 0; ks < kD / 16; ++ks) {
    std::uint32_t a[kParts][kMT][4];
    const std::uint32_t a_from = x + lanes.rows + (lanes.rows_chunk ^ (ks * 32));
    const std::uint32_t b_from = y + lanes.columns + (lanes.columns_chunk ^ (ks * 32));
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        load_matrices(a[part][mt], a_from + part * kXPlane + mt * 16 * kPitch);
      }
    }
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      std::uint32_t b[kParts][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        load_matrices(b[part], b_from + part * kYPlane + n * 16 * kPitch);
      }
#pragma unroll
      for (int product = kParts == 2 ? 2 : 0; product >= 0; --product) {  // the small ones first
        const int pa = product == (kSwapped ? 1 : 2) ? 1 : 0;
        const int pb = product == (kSwapped ? 2 : 1) ? 1 : 0;
#pragma unroll
        for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            multiply<E>(acc[mt][2 * n + half], a[pa % kParts][mt], b[pb % kParts][2 * half],
                        b[pb % kParts][2 * half + 1]);
          }
        }
      }
    }
  }
}

// Adds acc += X Y^T as multiply_rows() with two parts, for scores so large that last bits of sums
// matter: tensor cores truncate sums instead of rounding them, an error of some last bits over
// three products of 16 columns. Here each of these sums starts at 0 and is added to acc in float32.
template <class E, int kD, int kMT, int kN, int kXPlane, int kYPlane, bool kSwapped>
__device__ __forceinline__ void multiply_rows_rounded(float (&acc)[kMT][kN / 8][4], std::uint32_t x,
                                                      std::uint32_t y,
                                                      const LaneOffsets<kD>& lanes) {
  constexpr int kPitch = TileLayout<kD>::kPitch;
#pragma unroll
  for (int ks = 0; ks < kD / 16; ++ks) {
    const std::uint32_t a_from = x + lanes.rows + (lanes.rows_chunk ^ (ks * 32));
    const std::uint32_t b_from = y + lanes.columns + (lanes.columns_chunk ^ (ks * 32));
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
      std::uint32_t a[2][4];
      load_matrices(a[0], a_from + mt * 16 * kPitch);
      load_matrices(a[1], a_from + kXPlane + mt * 16 * kPitch);
#pragma unroll
      for (int n = 0; n < kN / 16; ++n) {
        std::uint32_t b[2][4];
        load_matrices(b[0], b_from + n * 16 * kPitch);
        load_matrices(b[1], b_from + kYPlane + n * 16 * kPitch);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum[4] = {};
          multiply<E>(sum, a[!kSwapped], b[kSwapped][2 * half], b[kSwapped][2 * half + 1]);
          multiply<E>(sum, a[kSwapped], b[!kSwapped][2 * half], b[!kSwapped][2 * half + 1]);
          multiply<E>(sum, a[0], b[0][2 * half], b[0][2 * half + 1]);
          float(&total)[4] = acc[mt][2 * n + half];
#pragma unroll
          for (int e = 0; e < 4; ++e) total[e] += sum[e];
          settle(total, lanes.rows_chunk, 1 << 24);
        }
      }
    }
  }
}

// Waits until the 64 threads of both warps of the pair number `pair` have called this.
__device__ __forceinline__ void synchronize_pair(int pair) {
  asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
}

// A left operand of the second product, P or dS [16 kMT rows, kN columns], in registers.
template <int kParts, int kMT, int kN>
struct Fragments {
  std::uint32_t word[kParts][kMT][kN / 16][4];
};

// Rounds the accumulators of the first product to left operands of the second, all in registers.
template <class E, int kParts, int kMT, int kN>
__device__ __forceinline__ void pack_fragments(Fragments<kParts, kMT, kN>& to,
                                               const float (&from)[kMT][kN / 8][4]) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pair)[4] = from[mt][2 * k + i / 2];
        split<E, kParts>(pair[i % 2 * 2], pair[i % 2 * 2 + 1], to.word[0][mt][k][i],
                         to.word[kParts - 1][mt][k][i]);
      }
    }
  }
}

// Sets acc[16 kMT rows, kD columns] = factor acc + P Y, Y read across its kN rows. With two parts,
// P Y is summed by itself and added in float32, because tensor cores truncate sums instead of
// rounding them, which would show over thousands of keys. With one part the caller has multiplied
// acc by the factor.
template <class E, int kParts, int kD, int kMT, int kN, int kYPlane>
__device__ __forceinline__ void multiply_columns(float (&acc)[kMT][kD / 8][4],
                                                 const Fragments<kParts, kMT, kN>& p,
                                                 std::uint32_t y, const LaneOffsets<kD>& lanes,
                                                 const float (&factor)[kMT][2]) {
  constexpr int kPitch = TileLayout<kD>::kPitch;
  const std::uint32_t from = y + lanes.rows;
  if constexpr (kParts == 1) {
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kD / 16; ++n) {
        std::uint32_t b[4];
        load_matrices_transposed(b, from + k * 16 * kPitch + (lanes.rows_chunk ^ (n * 32)));
#pragma unroll
        for (int mt = 0; mt < kMT; ++mt) {
          multiply<E>(acc[mt][2 * n], p.word[0][mt][k], b[0], b[1]);
          multiply<E>(acc[mt][2 * n + 1], p.word[0][mt][k], b[2], b[3]);
        }
      }
    }
  } else {
    // Two ways to avoid spilled registers; which one works for a kernel was found by trying.
    constexpr bool kSettles = kD > 32 && kMT * kN <= 64;
    constexpr int kStep = kMT == 1 && kD % 32 == 0 ? 2 : 1;  // four sums at least in flight
#pragma unroll
    for (int n = 0; n < kD / 16; n += kStep) {
      if (kD > 32 && !kSettles && n > 0) stay_behind(lanes.rows_chunk, (2 << 24) + 16 * n);
      float sum[kMT][2 * kStep][4] = {};
#pragma unroll
      for (int k = 0; k < kN / 16; ++k) {
        std::uint32_t b[kParts][kStep][4];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int s = 0; s < kStep; ++s) {
            load_matrices_transposed(b[part][s], from + part * kYPlane + k * 16 * kPitch +
                                                     (lanes.rows_chunk ^ ((n + s) * 32)));
          }
        }
#pragma unroll
        for (int product = 2; product >= 0; --product) {
          const int pa = product == 2 ? 1 : 0, pb = product == 1 ? 1 : 0;
#pragma unroll
          for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
            for (int half = 0; half < 2 * kStep; ++half) {
              multiply<E>(sum[mt][half], p.word[pa][mt][k], b[pb][half / 2][half % 2 * 2],
                          b[pb][half / 2][half % 2 * 2 + 1]);
            }
          }
        }
      }
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int half = 0; half < 2 * kStep; ++half) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& total = acc[mt][2 * n + half][e];
            total = fmaf(total, factor[mt][e / 2], sum[mt][half][e]);
          }
          if (kSettles) settle(acc[mt][2 * n + half], lanes.rows_chunk, 1 << 24);
        }
      }
    }
  }
}

// Stores a fragment, four words per lane and 512 bytes in all, to shared memory for other warps.
__device__ __forceinline__ void store_fragment(std::uint32_t to, const std::uint32_t (&word)[4],
                                               int lane) {
  store_shared(to + lane * 16, make_uint4(word[0], word[1], word[2], word[3]));
}

// Adds acc[16 kMT rows, kColumns columns] += P Y for Y's columns from first_column on. P [16 kMT,
// kN] lies in shared memory as fragments [kN / 16, kMT].
template <class E, int kD, int kColumns, int kMT, int kN>
__device__ __forceinline__ void multiply_shared_columns(float (&acc)[kMT][kColumns / 8][4],
                                                        std::uint32_t p, std::uint32_t y,
                                                        int first_column,
                                                        const LaneOffsets<kD>& lanes, int lane) {
  constexpr int kPitch = TileLayout<kD>::kPitch;
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) {
    std::uint32_t a[kMT][4];
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
      const uint4 words = load_shared(p + (k * kMT + mt) * 512 + lane * 16);
      a[mt][0] = words.x, a[mt][1] = words.y, a[mt][2] = words.z, a[mt][3] = words.w;
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(
          b, y + lanes.rows + k * 16 * kPitch + (lanes.rows_chunk ^ (n * 32 + first_column * 2)));
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        multiply<E>(acc[mt][2 * n], a[mt], b[0], b[1]);
        multiply<E>(acc[mt][2 * n + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

// Stores the warp's rows of a result, from `first` on, each multiplied by its factor. The warp has
// columns first_column .. first_column + kColumns of them. 16-bit results pass through `scratch`,
// the warp's own kMT * 16 rows of a tile in shared memory, so that they are stored in chunks of 16
// bytes.
template <class E, int kParts, int kD, int kColumns, int kMT>
__device__ __forceinline__ void store_rows(const ResultView& view, int batch, int head, int first,
                                           int rows, int first_column, int width,
                                           const float (&acc)[kMT][kColumns / 8][4],
                                           const float (&factor)[kMT][2], std::uint32_t scratch,
                                           int lane) {
  using Layout = TileLayout<kD>;
  if (view.data == nullptr) return;  // an unread result
  const std::int64_t start = batch * view.strides.batch + head * view.strides.head;
  const int g = lane >> 2, t = lane & 3;
  if (kParts == 2 || view.is_float) {  // sums of parts are float32
    float* to = static_cast<float*>(view.data) + start;
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + mt * 16 + half * 8 + g;
        if (row >= rows) continue;
        float* line = to + row * view.strides.row + first_column + 2 * t;
        const float f = factor[mt][half];
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const float2 pair = {acc[mt][n][2 * half] * f, acc[mt][n][2 * half + 1] * f};
          const int column = first_column + n * 8 + 2 * t;
          if (view.is_aligned && column + 1 < width) {
            *reinterpret_cast<float2*>(line + n * 8) = pair;
          } else {
            if (column < width) line[n * 8] = pair.x;
            if (column + 1 < width) line[n * 8 + 1] = pair.y;
          }
        }
      }
    }
    return;
  }
  __syncwarp();
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float f = factor[mt][half];
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        store_shared(scratch + Layout::offset(mt * 16 + half * 8 + g, first_column / 8 + n) + t * 4,
                     pack<E>(acc[mt][n][2 * half] * f, acc[mt][n][2 * half + 1] * f));
      }
    }
  }
  __syncwarp();
  E* to = static_cast<E*>(view.data) + start;
#pragma unroll 1
  for (int index = lane; index < 2 * kMT * kColumns; index += 32) {
    const int row = index / (kColumns / 8), chunk = first_column / 8 + index % (kColumns / 8);
    const int count = width - chunk * 8;
    if (first + row >= rows || count <= 0) continue;
    E* line = to + (first + row) * view.strides.row + chunk * 8;
    const uint4 words = load_shared(scratch + Layout::offset(row, chunk));
    if (view.is_aligned && count >= 8) {
      *reinterpret_cast<uint4*>(line) = words;
    } else {
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
      auto* bits = reinterpret_cast<std::uint16_t*>(line);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e < count) bits[e] = static_cast<std::uint16_t>(word[e / 2] >> (e % 2 * 16));
      }
    }
  }
}

}  // namespace tracestep::cuda::portable
