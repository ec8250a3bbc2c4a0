// Attention of a few new tokens over a cache of keys and values, as decoding has it.
#include "ops/attention_sizes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

enum Operand { kQ, kK, kV, kKCache, kVCache, kPosition, kCos, kSin };

// The permutation between [B,H,n,D] and [B,n,H,D].
const Dims kHeadsBehindTokens{0, 2, 1, 3};

std::vector<Type> result_types(const OpCall& c) {
  const auto shape_of = [&](int i) { return c.inputs[static_cast<std::size_t>(i)].shape; };
  rules::require_attention_operands(c, kQ);
  const Shape q = shape_of(kQ), k = shape_of(kK);
  if (q.rank() != 4) fail_usage(c.op, "{} axes; q is [B, H, n, D]", q.rank());
  if (k.back(1) != q.back(1)) {
    fail_usage(c.op, "{} new keys for {} new queries", k.back(1), q.back(1));
  }
  if (q.back() < 1 || q.back() > kMostFlashWidth) {
    fail_usage(c.op, "a head's width of {}; 1 to {}, or naive attention", q.back(),
               kMostFlashWidth);
  }
  Shape cache = k;
  cache[2] = shape_of(kKCache).rank() == 4 ? std::max(shape_of(kKCache)[2], k[2]) : k[2];
  for (int i : {kKCache, kVCache}) {
    rules::require_same_dtype(c, kQ, i);
    rules::require_shape(c, i, cache);
  }
  rules::require_integer(c, kPosition);
  rules::require_shape(c, kPosition, {});
  if (c.attrs.integer("window") < 0) {
    fail_usage(c.op, "a window of {} tokens; 0 means none", c.attrs.integer("window"));
  }
  if (c.inputs.size() > kCos) {
    if (c.inputs.size() <= kSin) fail_usage(c.op, "cosines without sines");
    const Shape table = shape_of(kCos);
    const std::int64_t pairs = table.rank() == 2 ? std::min(table[1], q.back() / 2) : 0;
    for (int i : {kCos, kSin}) rules::require_shape(c, i, {q.back(1), pairs});
  }
  const Type cached{c.inputs[0].dtype, cache};
  return {{c.inputs[0].dtype, {q[0], q[2], q[1], q[3]}}, cached, cached};
}

// Rotates the first pairs of every head, as many as the table has; without a table x stays.
Val turned(const OpExpansion& e, Val x) {
  if (e.inputs.size() <= kCos) return x;
  const RopeTable table{e.inputs[kCos], e.inputs[kSin]};
  const auto guard = e.builder.scope("rope");
  const std::int64_t width = 2 * table.cos.dim(1);
  if (width == x.dim(3)) return rope(x, table);
  return concat({rope(slice(x, 3, 0, width), table), slice(x, 3, width, x.dim(3))}, 3);
}

std::vector<Val> parts(const OpExpansion& e) {
  const Val position = e.inputs[kPosition];
  const Val q = turned(e, e.inputs[kQ]);
  const Val k = turned(e, e.inputs[kK]);
  Val keys, values;
  {
    const auto guard = e.builder.scope("cache");
    keys = write_slice(e.inputs[kKCache], k, position, 2);
    values = write_slice(e.inputs[kVCache], e.inputs[kV], position, 2);
  }
  const Val y = attention(q, keys, values,
                          {.scale = e.attrs.real("scale"),
                           .cap = e.attrs.real("cap"),
                           .window = e.attrs.integer("window")},
                          position);
  return {permute(y, kHeadsBehindTokens), keys, values};
}

std::vector<Val> whole(const OpExpansion& e) {
  const auto guard = e.builder.scope("flash");
  return e.builder.call(find_op("cached_attention"), {e.inputs.begin(), e.inputs.end()}, e.attrs);
}

bool unit_rows(int input, const Type& type, const Strides& strides) {
  return input <= kV ? rules::unit_inner_stride(input, type, strides)
                     : rules::contiguous(input, type, strides);
}

OpDef record(std::string name, std::string doc) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .source = "Dao et al. 2023, Flash-Decoding",
          .inputs = {"q", "k", "v", "k_cache", "v_cache", "position", "cos?", "sin?"},
          .outputs = {"y", "k_cache", "v_cache"},
          .attrs = {{"scale", AttrKind::kReal, std::nullopt, "factor on the scores"},
                    {"cap", AttrKind::kReal, AttrValue(0.0),
                     "scores s become cap · tanh(s / cap); 0: they stay"},
                    {"window", AttrKind::kInt, AttrValue(std::int64_t{0}),
                     "keys that a query sees, its own the last; 0: all"}},
          .kernel_class = KernelClass::kAttention,
          .infer = result_types,
          .accepts = unit_rows,
          .decompose = parts,
          .flops =
              [](const OpCall& c) {
                const AttentionSizes a = attention_sizes(c.inputs[kQ], c.inputs[kKCache]);
                return 4 * a.heads * a.queries * a.keys * a.width;
              },
          .donates = {{1, kKCache}, {2, kVCache}}};
}

}  // namespace

void register_cached_attention() {
  OpDef composite =
      record("attention_with_cache",
             "Attention of n new tokens: turns q [B, H, n, D] and k [B, H/group, n, D], "
             "writes k and v into the caches [B, H/group, T, D] from `position` on, and "
             "gives [B, n, H, D], where query i sees keys j <= position + i.");
  composite.forms = {{"naive", parts}, {"flash", whole}};
  composite.always_decompose = true;
  register_op(std::move(composite));
  OpDef kernel =
      record("cached_attention",
             "attention_with_cache in one pass over the caches: each key is read once for "
             "the heads of a group.");
  kernel.only_on_gpus = true;
  kernel.stays_whole = true;
  register_op(std::move(kernel));
}

}  // namespace tracestep::ops
