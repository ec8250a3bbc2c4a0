// The texts of a captured module's folder, program and index with a NUL between them: what is
// accepted makes programs of every kind that runs ask for.
#include "captured/captured_model.h"
#include "fuzz/fuzz_target.h"
#include "ir/verify.h"
#include "nn/captured_programs.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(text_of(data, size));
  const std::size_t cut = std::min(text.find('\0'), text.size());
  const std::string index = cut < text.size() ? text.substr(cut + 1) : "";
  accepts([&] {
    const auto model =
        std::make_shared<const CapturedModel>(captured_from(text.substr(0, cut), index, "folder"));
    const ModelConfig config = captured_config(model);
    const BatchShape shape{model->batch, model->context};
    verify(captured_logits(config, shape, model->weights));
    const LossOptions options{.scale = 0.5, .weights = model->weights};
    verify(captured_loss(config, shape, options));
    require(forward_flops(*model) >= 0.0);
    require(parameter_count(*model) >= 0);
  });
  return 0;
}
