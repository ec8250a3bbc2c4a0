#include "cli/chosen_forms.h"

#include "base/log.h"
#include "ops/attention_sizes.h"
#include "planning/device_traits.h"

namespace tracestep::cli {
namespace {

// The least context at which a CPU tiles attention. With tiles, steps of the preset tiny take as
// long at 128 tokens, and a tenth less at 512 (bench/results/cpu-epyc-2-cores.md).
constexpr std::int64_t kTiledContext = 512;

}  // namespace

Forms choose_forms(const RunSpec& run) {
  // Compiled steps train 1.8 times as many tokens a second on an H200, and flash attention saves
  // another twentieth (bench/results/cuda-h200.md). On a CPU compiled steps take as long as eager
  // ones.
  const DeviceTraits traits = traits_named(run.place.device);
  const bool is_gpu = traits.has_own_memory();
  const bool is_long = traits.computes && traits.shares_kernels_among_threads() &&
                       run.shape.context >= kTiledContext;
  // A choice of simple ops instead of composite ones holds for attention as well.
  const bool can_tile = run.ops == RunSpec().ops && run.model.head_width() <= kMostFlashWidth;
  const bool tiles = can_tile && (is_gpu || is_long);
  return {is_gpu ? ExecutorKind::kCompiled : ExecutorKind::kEager,
          tiles ? AttentionForm::kFlash : AttentionForm::kNaive};
}

void take_forms(RunSpec& run, const RunGrid& grid, const Forms& forms) {
  if (!grid.is_given("executor")) run.executor = forms.executor;
  if (!grid.is_given("attention")) run.attention = forms.attention;
}

void say_forms(const RunSpec& run) {
  log_info("on {}: {} steps, {} attention (--executor, --attention)", run.place.device,
           name_of(run.executor), name_of(run.attention));
}

}  // namespace tracestep::cli
