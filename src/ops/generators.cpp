// Ops without operands: constants that a program names but does not store.
#include <algorithm>
#include <charconv>

#include "base/suggest.h"
#include "ops/registers.h"
#include "ops/rope_frequency.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

Type declared_type(const OpCall& call) {
  if (is_float8(call.attrs.dtype("dtype"))) {
    fail_usage(call.op, "{} cannot be generated; cast it", name_of(call.attrs.dtype("dtype")));
  }
  return {call.attrs.dtype("dtype"), call.attrs.ints("shape")};
}

const AttrDef kDTypeAttr{"dtype", AttrKind::kDType, std::nullopt, "element type"};
const AttrDef kShapeAttr{"shape", AttrKind::kInts, std::nullopt, "result shape"};

// Reads the numbers of "1:1.5:2", one for each pair; throws if any is missing or not positive.
void read_factors(const std::string& text, std::int64_t pairs, double* out) {
  const char *at = text.data(), *const end = at + text.size();
  std::int64_t count = 0;
  for (; at < end && count < kMostRopeFactors; ++count) {
    const auto [next, error] = std::from_chars(at, end, out[count]);
    if (error != std::errc() || !(out[count] > 0.0) || (next < end && *next != ':')) break;
    at = next < end ? next + 1 : end;
  }
  if (at == end && count == pairs) return;
  fail_usage("rope_table", "longrope takes a factor above 0 for each of {} pairs, {} at most",
             pairs, kMostRopeFactors);
}

}  // namespace

RopeFrequency rope_frequency(const Attrs& attrs) {
  constexpr std::string_view names[] = {"none", "linear", "llama3", "yarn", "longrope"};
  const std::string& name = attrs.text("scaling");
  const auto at = std::ranges::find(names, name) - std::begin(names);
  if (at == std::ssize(names)) {  // kernels call this, and allocate nothing
    check_choice("rope_table", name, std::vector<std::string>(std::begin(names), std::end(names)));
  }
  RopeFrequency out{.theta = attrs.real("theta"),
                    .width = static_cast<double>(attrs.integer("width")),
                    .scale = static_cast<RopeScale>(at),
                    .factor = attrs.real("factor"),
                    .low = attrs.real("low"),
                    .high = attrs.real("high"),
                    .original = static_cast<double>(attrs.integer("original")),
                    .factors = {}};
  if (out.scale == RopeScale::kLongRope) {
    read_factors(attrs.text("factors"), attrs.integer("width") / 2, out.factors);
  }
  return out;
}

void register_generators() {
  register_op(
      {.name = "fill",
       .doc = "Every element is `value`.",
       .outputs = {"y"},
       .attrs = {{"value", AttrKind::kReal, std::nullopt, "the constant"}, kDTypeAttr, kShapeAttr},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kKeep,
       .infer = [](const OpCall& c) { return std::vector{declared_type(c)}; },
       .cheap_to_recompute = true});

  register_op(
      {.name = "iota",
       .doc = "0, 1, 2, … along `axis`, the same along all others.",
       .outputs = {"y"},
       .attrs = {{"axis", AttrKind::kInt, std::nullopt, "counted axis"}, kDTypeAttr, kShapeAttr},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kKeep,
       .infer =
           [](const OpCall& c) {
             const Type type = declared_type(c);
             rules::normalized_axis(c, c.attrs.integer("axis"), type.shape.rank());
             return std::vector{type};
           },
       .cheap_to_recompute = true});

  register_op(
      {.name = "rope_table",
       .doc = "cos and sin of position · theta^(-2j/width), [length, width/2], computed in double. "
              "Scaled, a frequency is divided by the factor: all (linear), long waves (llama3), "
              "pairs that turn seldom within the original positions (yarn), or each by its own "
              "(longrope).",
       .source = "Su et al. 2021, RoFormer, eq. 15; Peng et al. 2023, YaRN, eq. 17; Ding et al. "
                 "2024, LongRoPE",
       .outputs = {"cos", "sin"},
       .attrs = {{"length", AttrKind::kInt, std::nullopt, "positions"},
                 {"width", AttrKind::kInt, std::nullopt, "head width D, even"},
                 {"theta", AttrKind::kReal, AttrValue(10000.0), "base of the frequencies"},
                 {"scaling", AttrKind::kText, AttrValue(std::string("none")),
                  "none, linear, llama3, yarn or longrope"},
                 {"factor", AttrKind::kReal, AttrValue(1.0), "what frequencies are divided by"},
                 {"low", AttrKind::kReal, AttrValue(1.0), "turns below which one is divided"},
                 {"high", AttrKind::kReal, AttrValue(4.0), "turns above which one stays"},
                 {"original", AttrKind::kInt, AttrValue(std::int64_t{8192}),
                  "positions within which turns are counted"},
                 {"magnitude", AttrKind::kReal, AttrValue(1.0), "factor on cos and sin"},
                 {"factors", AttrKind::kText, AttrValue(std::string()),
                  "longrope's, of each pair: 1:1.5:2"},
                 {"dtype", AttrKind::kDType, AttrValue(DType::kF32), "element type"}},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kFull,
       .infer =
           [](const OpCall& c) {
             const std::int64_t width = c.attrs.integer("width");
             const std::int64_t length = c.attrs.integer("length");
             if (width <= 0 || width % 2 != 0) {
               fail_usage(c.op, "width {} is not even; rotation works on pairs", width);
             }
             if (length < 0) fail_usage(c.op, "length {} is negative", length);
             rope_frequency(c.attrs);  // checks the scaling
             const Type type{c.attrs.dtype("dtype"), {length, width / 2}};
             return std::vector{type, type};
           },
       .cheap_to_recompute = true});
}

}  // namespace tracestep::ops
