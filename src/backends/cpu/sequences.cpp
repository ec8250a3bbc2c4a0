// Ops whose result depends on an element's place in its row or tensor: cumsum, dropout.
#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/plain_chunks.h"
#include "ops/dropout_words.h"

namespace tracestep::cpu {
namespace {

// Calls f with two zeros: of the dtype's type, and of the type that its elements are computed in.
template <class F>
void with_numbers(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kBF16: return f(BF16{}, float{});
    case DType::kF16: return f(F16{}, float{});
    case DType::kI64: return f(std::int64_t{}, std::int64_t{});
    case DType::kI32: return f(std::int32_t{}, std::int64_t{});
    default: return f(float{}, float{});
  }
}

template <class Wide, class T>
Wide widened(T x) {
  if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
    return to_float(x);
  } else {
    return static_cast<Wide>(x);
  }
}

// Writes the running sums of each row, which one thread adds in order, so that bits do not depend
// on the number of threads. Sums of floating numbers are in double.
void cumsum_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = y.shape.back(), count = y.count();
  if (count == 0) return;
  const bool from_end = call.attrs.flag("reverse");
  const std::int64_t rows = count / width, per_chunk = std::max<std::int64_t>(1, 4096 / width);
  with_numbers(y.dtype, [&]<class T, class Wide>(T, Wide) {
    using Sum = std::conditional_t<std::is_floating_point_v<Wide>, double, std::int64_t>;
    for_plain(call, (rows + per_chunk - 1) / per_chunk, [&](std::int64_t chunk) {
      const std::int64_t end = std::min(rows, (chunk + 1) * per_chunk);
      for (std::int64_t row = chunk * per_chunk; row < end; ++row) {
        Sum sum = 0;
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t at = row * width + (from_end ? width - 1 - j : j);
          sum += static_cast<Sum>(widened<Wide>(x.as<const T>()[at]));
          put_number(y.data, y.dtype, at, sum);
        }
      }
    });
  });
}

void dropout_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t batch = integer_at(call.inputs[1], 0), stream = call.attrs.integer("stream");
  const std::uint32_t threshold = ops::dropout_threshold(call.attrs.real("rate"));
  const auto scale = static_cast<float>(ops::dropout_scale(call.attrs.real("rate")));
  with_numbers(y.dtype, [&]<class T, class Wide>(T, Wide) {
    static_assert(kPlainChunk % 4 == 0);
    for_plain_chunks(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
      for (std::int64_t i = begin; i < begin + n; i += 4) {
        const Uint32x4 words = ops::dropout_words(stream, batch, static_cast<std::uint64_t>(i / 4));
        const std::int64_t end = std::min(i + 4, begin + n);
        for (std::int64_t j = i; j < end; ++j) {
          const bool is_kept = words[static_cast<std::size_t>(j - i)] >= threshold;
          const auto value = static_cast<float>(widened<Wide>(x.as<const T>()[j]));
          put_number(y.data, y.dtype, j, is_kept ? value * scale : 0.0f);
        }
      }
    });
  });
}

}  // namespace

void add_sequence_kernels(KernelTable& table) {
  table.add("cumsum", cumsum_kernel);
  table.add("dropout", dropout_kernel);
}

}  // namespace tracestep::cpu
