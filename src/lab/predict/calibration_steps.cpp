// The steps of a calibration.
#include "lab/predict/calibrate.h"

namespace tracestep {
namespace {

struct Size {
  std::int64_t d_model, d_ff, heads, vocab, layers, batch, context;
};
// Sizes of the steps: widths, contexts and vocabularies unlike those that people ask for, from
// sizes that fit the caches to sizes that do not.
constexpr Size kSmallest{128, 448, 4, 512, 1, 4, 64}, kSmall{192, 704, 3, 3000, 2, 4, 96},
    kManyTokens{192, 704, 6, 12000, 1, 4, 224};
struct Sizes {
  Size middle, wide, deep, long_context;
};
constexpr Sizes kForCpu{.middle = {384, 1344, 6, 2048, 1, 4, 160},
                        .wide = {896, 3136, 14, 4500, 1, 4, 144},
                        .deep = {576, 2112, 9, 12000, 1, 2, 352},
                        .long_context = {320, 960, 5, 1000, 2, 2, 720}};
// Sizes for a GPU, where libraries have faster kernels for products whose sizes are multiples of
// 64, as those of most models are; and larger steps, which keep it busy.
constexpr Sizes kForGpu{.middle = {384, 1536, 6, 2048, 1, 4, 192},
                        .wide = {896, 3584, 14, 4544, 1, 4, 160},
                        .deep = {640, 2560, 10, 12032, 1, 2, 384},
                        .long_context = {320, 1280, 5, 1024, 2, 2, 768}};
constexpr Size kLargeWide{2048, 8192, 32, 5056, 1, 4, 1152},
    kLargeNarrow{896, 3584, 14, 6016, 2, 4, 1280}, kLargeShort{1536, 6144, 24, 9024, 1, 4, 320},
    kLargeMiddle{1408, 5632, 22, 12032, 1, 4, 768};
// Sizes of the steps that are held out, between the sizes of the other steps.
constexpr Size kHeldOut{224, 832, 7, 1500, 3, 4, 112},
    kLargeHeldOut{1152, 4608, 18, 7040, 2, 4, 640};

RunSpec step_of(const Size& s, const Precision& precision, const Place& place) {
  RunSpec out{.model = {.vocab = s.vocab,
                        .d_model = s.d_model,
                        .d_ff = s.d_ff,
                        .layers = s.layers,
                        .heads = s.heads},
              .shape = {.batch = s.batch, .context = s.context},
              .precision = precision};
  out.place = place;
  out.place.memory_limit_bytes = 0;
  return out;
}

}  // namespace

std::vector<CalibrationStep> calibration_steps(const Place& place,
                                               std::span<const Precision> precisions) {
  std::vector<CalibrationStep> out;
  const bool is_gpu = traits_named(place.device).has_own_memory();
  const Sizes& its = is_gpu ? kForGpu : kForCpu;
  const auto as_it_is = [](RunSpec&) {};
  const auto primitive = [](RunSpec& s) { s.ops = Granularity::kPrimitive; };
  const auto compiled = [](RunSpec& s) { s.executor = ExecutorKind::kCompiled; };
  const auto flash = [](RunSpec& s) { s.attention = AttentionForm::kFlash; };
  for (const Precision& precision : precisions) {
    // Other precisions have most of their kernels in common with these two.
    const std::string name = name_of(precision);
    const bool is_main = name == "fp32" || name == "bf16";
    const auto add = [&](std::initializer_list<Size> sizes, auto change, bool is_held_out = false,
                         bool is_large = false) {
      for (const Size& size : sizes) {
        out.push_back({step_of(size, precision, place), is_held_out, is_main && is_large});
        change(out.back().run);
      }
    };
    add({kSmall, its.middle, its.long_context}, as_it_is);
    add({kSmall}, primitive);
    add({kSmall}, compiled);
    add({its.middle}, flash);
    add({kHeldOut}, as_it_is, true);
    if (is_main) {
      add({kSmallest}, as_it_is);
      out.back().is_metered = is_gpu;  // between launches of the host
      add({its.wide, its.deep}, as_it_is);
      add({its.middle, kManyTokens}, primitive);
      add({its.deep}, compiled);
      add({its.long_context}, flash);
      if (!is_gpu) add({kManyTokens}, flash);  // narrower heads
      add({kHeldOut}, compiled, true);
      add({kHeldOut}, primitive, true);
      add({kHeldOut}, flash, true);
    }
    if (!is_gpu) continue;
    add({kLargeWide, kLargeMiddle}, as_it_is, false, true);
    add({kLargeNarrow}, compiled, false, true);
    add({kLargeWide}, flash, false, true);
    add({kLargeHeldOut}, as_it_is, true, true);
    if (is_main) {
      add({kLargeNarrow, kLargeShort}, as_it_is, false, true);
      add({kLargeNarrow}, primitive, false, true);
      add({kLargeMiddle}, compiled, false, true);
      add({kLargeNarrow}, flash, false, true);
    }
  }
  return out;
}

}  // namespace tracestep
