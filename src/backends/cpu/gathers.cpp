// Look-ups by index and their transposes. Sums into one row are made in the order of the indices:
// indices are sorted by row first (stably, by counting), then every row has one writer.
#include <cstring>
#include <limits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/plain_chunks.h"
#include "base/half.h"

namespace tracestep::cpu {
namespace {

std::int64_t checked_index(const KernelCall& call, std::int64_t i, std::int64_t size) {
  const std::int64_t index = integer_at(call.inputs[1], i);
  if (index < 0 || index >= size) {
    fail_usage(call.op, "index {} at position {} is outside [0, {})", index, i, size);
  }
  return index;
}

std::int64_t rows_per_chunk(std::int64_t width) {
  return std::max<std::int64_t>(1, kPlainChunk / std::max<std::int64_t>(1, width));
}

// Calls f(begin, end) for ranges that cover all rows, on this call's threads.
template <class F>
void for_row_ranges(const KernelCall& call, std::int64_t rows, std::int64_t width, const F& f) {
  const std::int64_t step = rows_per_chunk(width);
  for_plain(call, (rows + step - 1) / step,
            [&](std::int64_t chunk) { f(chunk * step, std::min(rows, (chunk + 1) * step)); });
}

void gather_kernel(const KernelCall& call) {
  const TensorRef &table = call.inputs[0], &y = call.outputs[0];
  const std::int64_t rows = call.inputs[1].count(), width = table.shape[1];
  const auto bytes = static_cast<std::size_t>(width) * size_of(y.dtype);
  for_row_ranges(call, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto from = static_cast<std::size_t>(checked_index(call, i, table.shape[0]));
      std::memcpy(y.as<std::byte>() + static_cast<std::size_t>(i) * bytes,
                  table.as<const std::byte>() + from * bytes, bytes);
    }
  });
}

float widened(float x) {
  return x;
}
float widened(BF16 x) {
  return to_float(x);
}
float widened(F16 x) {
  return to_float(x);
}
void round_to(float x, float& y) {
  y = x;
}
void round_to(float x, BF16& y) {
  y = to_bf16(x);
}
void round_to(float x, F16& y) {
  y = to_f16(x);
}

constexpr std::int64_t kSummedColumns = 512;

// Sets y to the sum of the first n columns of the rows of x named by `members`, in their order, in
// float32: sums of kPart rows, and their sum, so that the error does not grow with every one of
// thousands of rows.
template <class T, class Y>
void sum_columns(const T* x, std::int64_t width, std::int64_t n,
                 std::span<const std::int64_t> members, Y* y) {
  constexpr std::size_t kPart = 64;
  float total[kSummedColumns] = {}, part[kSummedColumns];
  for (std::size_t i = 0; i < members.size(); i += kPart) {
    std::fill(part, part + n, 0.0f);
    for (const std::int64_t row : members.subspan(i, std::min(kPart, members.size() - i))) {
      const T* from = x + row * width;
      for (std::int64_t j = 0; j < n; ++j) part[j] += widened(from[j]);
    }
    for (std::int64_t j = 0; j < n; ++j) total[j] += part[j];
  }
  for (std::int64_t j = 0; j < n; ++j) round_to(total[j], y[j]);
}

// Calls f(row, members) for every row of the result; its members are rows of x, in order.
template <class F>
void for_scattered_rows(const KernelCall& call, const F& f) {
  const TensorRef& y = call.outputs[0];
  const std::int64_t rows = y.shape[0], width = y.shape[1], count = call.inputs[1].count();
  auto* start = reinterpret_cast<std::int64_t*>(call.workspace.data());  // [rows + 2]
  std::int64_t* members = start + rows + 2;                              // [count]
  std::fill(start, start + rows + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++start[checked_index(call, i, rows) + 2];
  for (std::int64_t r = 0; r < rows; ++r) start[r + 2] += start[r + 1];
  for (std::int64_t i = 0; i < count; ++i) members[start[integer_at(call.inputs[1], i) + 1]++] = i;
  for_row_ranges(call, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      f(r, std::span(members + start[r], static_cast<std::size_t>(start[r + 1] - start[r])));
    }
  });
}

template <class T>
void scatter_rows(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = y.shape[1];
  for_scattered_rows(call, [&](std::int64_t row, std::span<const std::int64_t> members) {
    T* const to = y.as<T>() + row * width;
    if (members.empty()) return void(std::fill(to, to + width, T{}));
    for (std::int64_t c = 0; c < width; c += kSummedColumns) {
      sum_columns(x.as<const T>() + c, width, std::min(kSummedColumns, width - c), members, to + c);
    }
  });
}

template <class T, class Base>
void scatter_rows_to(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &base = call.inputs[2], &y = call.outputs[0];
  const std::int64_t width = y.shape[1];
  for_scattered_rows(call, [&](std::int64_t row, std::span<const std::int64_t> members) {
    float sums[kSummedColumns];
    for (std::int64_t c = 0; c < width; c += kSummedColumns) {
      const std::int64_t n = std::min(kSummedColumns, width - c);
      const Base* const from = base.as<const Base>() + row * width + c;
      T* const to = y.as<T>() + row * width + c;
      sum_columns(x.as<const T>() + c, width, n, members, sums);
      for (std::int64_t j = 0; j < n; ++j) round_to(sums[j] + widened(from[j]), to[j]);
    }
  });
}

void scatter_add_kernel(const KernelCall& call) {
  switch (call.outputs[0].dtype) {
    case DType::kBF16: scatter_rows<BF16>(call); break;
    case DType::kF16: scatter_rows<F16>(call); break;
    default: scatter_rows<float>(call); break;
  }
}

void scatter_add_to_kernel(const KernelCall& call) {
  switch (call.outputs[0].dtype) {
    case DType::kBF16: return scatter_rows_to<BF16, BF16>(call);
    case DType::kF16: return scatter_rows_to<F16, F16>(call);
    default: break;
  }
  switch (call.inputs[2].dtype) {
    case DType::kBF16: return scatter_rows_to<float, BF16>(call);
    case DType::kF16: return scatter_rows_to<float, F16>(call);
    default: return scatter_rows_to<float, float>(call);
  }
}

void take_along_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = x.shape.back();
  const std::size_t bytes = size_of(x.dtype);
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const auto from = static_cast<std::size_t>(i * width + checked_index(call, i, width));
    std::memcpy(y.as<std::byte>() + static_cast<std::size_t>(i) * bytes,
                x.as<const std::byte>() + from * bytes, bytes);
  }
}

void put_along_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = y.shape.back();
  const std::size_t bytes = size_of(x.dtype);
  for_row_ranges(call, x.count(), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* row = y.as<std::byte>() + static_cast<std::size_t>(i * width) * bytes;
      std::memset(row, 0, static_cast<std::size_t>(width) * bytes);
      std::memcpy(row + static_cast<std::size_t>(checked_index(call, i, width)) * bytes,
                  x.as<const std::byte>() + static_cast<std::size_t>(i) * bytes, bytes);
    }
  });
}

// Writes the first index of a row's largest number; the second result is -1 if one is not finite.
template <class T>
void greedy_tokens(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const std::int64_t width = x.shape.back();
  for_row_ranges(call, x.count() / width, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const logits = x.as<const T>() + row * width;
      std::int64_t best = 0;
      float top = -std::numeric_limits<float>::infinity(), zeros = 0.0f;
      for (std::int64_t i = 0; i < width; ++i) {
        const float value = widened(logits[i]);
        zeros += 0.0f * value;  // NaN for what is not finite
        if (value > top) best = i;
        if (value > top) top = value;
      }
      if (call.outputs[0].data != nullptr) call.outputs[0].as<std::int64_t>()[row] = best;
      if (call.outputs[1].data != nullptr) {
        call.outputs[1].as<std::int64_t>()[row] = zeros == 0.0f ? best : -1;
      }
    }
  });
}

void greedy_token_kernel(const KernelCall& call) {
  switch (call.inputs[0].dtype) {
    case DType::kBF16: return greedy_tokens<BF16>(call);
    case DType::kF16: return greedy_tokens<F16>(call);
    default: return greedy_tokens<float>(call);
  }
}

}  // namespace

void add_gather_kernels(KernelTable& table) {
  table.add("gather", gather_kernel);
  table.add("scatter_add", scatter_add_kernel);
  table.add("scatter_add_to", scatter_add_to_kernel);
  table.add("take_along", take_along_kernel);
  table.add("greedy_token", greedy_token_kernel);
  table.add("put_along", put_along_kernel);
}

}  // namespace tracestep::cpu
