// Packs of dense rows as words of memory. 16-bit elements are widened, compared and rounded in
// pairs: one at a time, each would need two more instructions to be unpacked and packed again, and
// at memory speed there is time for few instructions per element.
#pragma once

#include "backends/cuda/rows/rows.cuh"

namespace tracestep::cuda {

// Returns the larger elements of two words, each of one float or two 16-bit elements; NaN wins.
template <class T>
__device__ inline std::uint32_t larger_of_words(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  if constexpr (std::is_same_v<T, BF16>) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else if constexpr (std::is_same_v<T, F16>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else {
    y = __float_as_uint(maximum(__uint_as_float(a), __uint_as_float(b)));
  }
  return y;
}

template <class T, int N = kPack<T>>
struct RowPack {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  using Whole = typename WordOf<kBytes>::Type;
  using Word = std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
  static constexpr bool kPairs = sizeof(T) < sizeof(Word);

  Word words[kWords];

  __device__ static RowPack load(const T* address) {
    const Whole whole = *reinterpret_cast<const Whole*>(address);
    RowPack pack;
    memcpy(pack.words, &whole, sizeof whole);
    return pack;
  }
  __device__ void store(T* address) const {
    Whole whole;
    memcpy(&whole, words, sizeof whole);
    __stwb(reinterpret_cast<Whole*>(address), whole);
  }

  __device__ static RowPack filled(T x) {
    RowPack pack;
    const Word word = word_of(x);
#pragma unroll
    for (int w = 0; w < kWords; ++w) pack.words[w] = word;
    return pack;
  }
  // Sets the elements from number n on to x.
  __device__ void fill_from(int n, T x) {
    const Word word = word_of(x);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (kPairs) {
        if (2 * w + 1 == n) words[w] = (words[w] & 0xffffu) | (word & 0xffff0000u);
        if (2 * w >= n) words[w] = word;
      } else {
        if (w >= n) words[w] = word;
      }
    }
  }
  __device__ void negate() {
    constexpr Word kSigns = sizeof(T) == 4 ? 0x80000000u : static_cast<Word>(0x80008000u);
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] ^= kSigns;
  }

  __device__ T element(int i) const {
    T x;
    if constexpr (kPairs) {
      const auto bits = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
      memcpy(&x, &bits, sizeof x);
    } else {
      memcpy(&x, &words[i], sizeof x);
    }
    return x;
  }
  __device__ void set_element(int i, T x) {
    const Word word = word_of(x);
    if constexpr (kPairs) {
      const Word half = 0xffffu << (i % 2 * 16);
      words[i / 2] = (words[i / 2] & ~half) | (word & half);
    } else {
      words[i] = word;
    }
  }

  __device__ void floats(float (&out)[N]) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (!kPairs) {
        out[w] = to_float(element(w));
      } else if constexpr (std::is_same_v<T, BF16>) {
        out[2 * w] = __uint_as_float(words[w] << 16);
        out[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
      } else {
        __half2 pair;
        memcpy(&pair, &words[w], sizeof pair);
        const float2 both = __half22float2(pair);
        out[2 * w] = both.x;
        out[2 * w + 1] = both.y;
      }
    }
  }
  __device__ static RowPack rounded(const float (&x)[N]) {
    RowPack pack;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (!kPairs) {
        pack.words[w] = word_of(from_float<T>(x[w]));
      } else if constexpr (std::is_same_v<T, BF16>) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * w], x[2 * w + 1]);
        memcpy(&pack.words[w], &pair, sizeof pair);
      } else {
        const __half2 pair = __floats2half2_rn(x[2 * w], x[2 * w + 1]);
        memcpy(&pack.words[w], &pair, sizeof pair);
      }
    }
    return pack;
  }

 private:
  __device__ static Word word_of(T x) {
    if constexpr (kPairs) {
      std::uint16_t bits;
      memcpy(&bits, &x, sizeof bits);
      return bits * 0x10001u;
    } else {
      Word word;
      memcpy(&word, &x, sizeof word);
      return word;
    }
  }
};

// Returns the largest element of kCount packs; NaN if one is NaN.
template <class T, int kCount>
__device__ inline float largest_of(const RowPack<T> (&packs)[kCount]) {
  constexpr int kWords = RowPack<T>::kWords;
  RowPack<T> all = packs[0];
#pragma unroll
  for (int k = 1; k < kCount; ++k) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      all.words[w] = larger_of_words<T>(all.words[w], packs[k].words[w]);
    }
  }
  const std::uint32_t word = larger_of_words<T>(larger_of_words<T>(all.words[0], all.words[1]),
                                                larger_of_words<T>(all.words[2], all.words[3]));
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(word);
  } else {
    RowPack<T, 2> pair;
    pair.words[0] = word;
    float x[2];
    pair.floats(x);
    return maximum(x[0], x[1]);
  }
}

// True if every pack lies in one row, for dense rows at x and at y (if given) of this width.
template <class T>
bool are_whole(std::int64_t width, const void* x, const void* y = nullptr) {
  return width % kPack<T> == 0 && is_aligned(x, 16) && is_aligned(y, 16);
}

// A row, or a part of a long one, counted in elements from an aligned address, so that packs begin
// at multiples of their size: [low, high), of which elements before `visible` are read. kWhole: no
// pack reaches over an end, which spares a kernel the instructions and registers for the ends.
template <bool kWhole>
struct RowRange {
  int low, visible, high;

  // A range that begins `begin` elements after an aligned address; the row starts `shift` elements
  // after that address. `visible` and `width` are counted from the row's start.
  __device__ RowRange(int shift, std::int64_t begin, std::int64_t visible, std::int64_t width)
      : low(!kWhole && begin == 0 ? shift : 0),
        visible(bounded(visible + shift - begin)),
        high(bounded(width + shift - begin)) {}

  __device__ bool has_pack(int begin, int size) const {
    return kWhole ? begin < high : begin >= low && begin + size <= high;
  }

 private:
  __device__ static int bounded(std::int64_t x) {
    return static_cast<int>(::min(x, std::int64_t{1} << 30));
  }
};

// Returns how many elements the row starts after the last aligned address; 0 if kWhole.
template <bool kWhole, class T>
__device__ inline int row_shift(const T* row) {
  return kWhole ? 0 : pack_shift(row);
}

// Loads the pack at `begin`, which reaches over an end of the row; elements beyond are `outside`.
template <class T>
__device__ inline RowPack<T> load_end(const T* aligned, int begin, const RowRange<false>& range,
                                      T outside) {
  RowPack<T> pack = RowPack<T>::filled(outside);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    if (begin + i >= range.low && begin + i < range.visible) {
      pack.set_element(i, aligned[begin + i]);
    }
  }
  return pack;
}

// Loads kCount packs: `first`, `first + step`, ... Elements that are not visible become `outside`,
// and none outside the row is read. All loads of whole packs are started before the first is used.
template <int kCount, bool kWhole, class T>
__device__ inline void load_row(const T* aligned, int first, int step,
                                const RowRange<kWhole>& range, T outside,
                                RowPack<T> (&out)[kCount]) {
  constexpr int kSize = kPack<T>;
  if (first >= range.low && first + (kCount - 1) * step + kSize <= range.visible) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) out[k] = RowPack<T>::load(aligned + first + k * step);
    return;
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int begin = first + k * step;
    out[k] = RowPack<T>::filled(outside);
    if (begin < range.visible && range.has_pack(begin, kSize)) {
      out[k] = RowPack<T>::load(aligned + begin);
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int begin = first + k * step;
    if (begin >= range.visible || (begin >= range.low && begin + kSize <= range.visible)) continue;
    if constexpr (!kWhole) {
      if (!range.has_pack(begin, kSize)) {
        out[k] = load_end(aligned, begin, range, outside);
        continue;
      }
    }
    out[k].fill_from(range.visible - begin, outside);
  }
}

// Stores a pack. `as_packs`: packs that are aligned in the operand are also aligned at `at`.
template <bool kWhole, class T>
__device__ inline void store_row_pack(T* at, int begin, const RowRange<kWhole>& range,
                                      bool as_packs, const RowPack<T>& pack) {
  constexpr int kSize = kPack<T>;
  if constexpr (kWhole) {
    if (begin < range.high) pack.store(at + begin);
    return;
  } else {
    if (as_packs && range.has_pack(begin, kSize)) {
      pack.store(at + begin);
      return;
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (begin + i >= range.low && begin + i < range.high) at[begin + i] = pack.element(i);
    }
  }
}

}  // namespace tracestep::cuda
