// Heads: an operand or result of flash_attention as one matrix [T, D] per head, with dense rows at
// any row stride.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/attention_sizes.h"
#include "runtime/kernel.h"

namespace tracestep::cpu {

struct Heads {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t element_bytes = 4;
  Shape shape;              // The shape of the axes that count heads.
  Strides strides;          // The strides of these axes.
  std::int64_t row_stride;  // elements

  // Takes the rows of x: [..., H, T, D], or [..., T, H, D] if `token_major`.
  Heads(const TensorRef& x, bool token_major)
      : data(x.as<std::byte>()),
        dtype(x.dtype),
        element_bytes(static_cast<std::int64_t>(size_of(x.dtype))) {
    const int rows = x.shape.rank() - (token_major ? 3 : 2);
    for (int i = 0; i < x.shape.rank() - 1; ++i) {
      if (i == rows) continue;
      shape.push_back(x.shape[i]);
      strides.push_back(x.strides[i]);
    }
    row_stride = x.strides[rows];
  }

  // True unless this stands for a result that is not read.
  explicit operator bool() const { return data != nullptr; }
  // Returns the address of row `row` of head `head`.
  std::byte* at(std::int64_t head, std::int64_t row) const {
    std::int64_t offset = row * row_stride;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      offset += head % shape[i] * strides[i];
      head /= shape[i];
    }
    return data + offset * element_bytes;
  }
  template <class T>
  const T* rows(std::int64_t head, std::int64_t row) const {
    return reinterpret_cast<const T*>(at(head, row));
  }
};

inline constexpr double kLog2E = 1.4426950408889634;

// The sizes and options of a call; `q` is the index of its operand q.
struct AttentionProblem {
  float scale;
  bool causal, token_major;
  std::int64_t heads, key_heads;  // The heads of q, and those of k and v.
  std::int64_t group;             // How many heads of q share a head of k.
  std::int64_t queries, keys, width;
  std::int64_t window;  // How many keys a query sees; the number of keys if it sees all.
  float cap;            // The cap of scores in units of log 2; 0: none.
  // Where the document of each query begins and ends, for one text or for all, [.., queries];
  // nullptr: there are none.
  const std::int64_t *starts = nullptr, *ends = nullptr;
  std::int64_t heads_of_text;  // How many heads of q belong to one text.

  AttentionProblem(const KernelCall& call, std::size_t q)
      : scale(static_cast<float>(call.attrs.real("scale"))),
        causal(call.attrs.flag("causal")),
        token_major(call.attrs.flag("token_major")),
        group(attention_group(call.inputs[q].shape, call.inputs[q + 1].shape)),
        queries(call.inputs[q].shape.back(1)),
        keys(call.inputs[q + 1].shape.back(1)),
        width(call.inputs[q].shape.back()),
        window(call.attrs.integer("window")),
        cap(static_cast<float>(call.attrs.real("cap") * kLog2E)) {
    if (window == 0) window = keys;
    const Shape& shape = call.inputs[q].shape;
    heads_of_text = shape.rank() < 3 ? 1 : shape.back(2);
    if (const std::size_t bounds = q == 0 ? 3 : 6; call.inputs.size() > bounds) {
      starts = call.inputs[bounds].as<const std::int64_t>();
      ends = call.inputs[bounds + 1].as<const std::int64_t>();
    }
    const std::int64_t count = call.inputs[q].count();
    heads = count == 0 ? 0 : count / (queries * width);
    key_heads = heads / group;
  }

  // Returns the problem for `head` of q, with the document bounds of its own text.
  AttentionProblem of_head(std::int64_t head) const {
    AttentionProblem out = *this;
    const std::int64_t before = starts == nullptr ? 0 : head / heads_of_text * queries;
    out.starts += before;
    out.ends += before;
    return out;
  }

  // Returns the end of the keys that query i sees.
  std::int64_t visible(std::int64_t i) const {
    return causal ? std::min(keys, i + (keys - queries) + 1) : keys;
  }
  // Returns the first key that query i sees.
  std::int64_t first_visible(std::int64_t i) const {
    const std::int64_t first = i + (keys - queries) + 1 - window;
    return std::max(first, starts == nullptr ? 0 : starts[i]);
  }
  // True if there may be keys before the first one that a query sees.
  bool has_window() const { return window < keys || starts != nullptr; }
  // Return the first query that sees key j, and the first one after it that does not.
  std::int64_t first_query(std::int64_t j) const {
    return causal ? std::max<std::int64_t>(0, j - (keys - queries)) : 0;
  }
  std::int64_t end_query(std::int64_t j) const {
    const std::int64_t end = std::min(queries, j - (keys - queries) + window);
    return !has_window() ? queries : starts == nullptr ? end : std::min(end, ends[j]);
  }
};

}  // namespace tracestep::cpu
