#include "course/claim_figures.h"

#include <charconv>

#include <fmt/ranges.h>

#include "base/error.h"
#include "course/data.h"
#include "course/modelled.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/predict/devices.h"
#include "nn/config.h"

namespace tracestep {
namespace {

double number(const std::string& text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  TRACESTEP_CHECK(error == std::errc() && end == text.data() + text.size(), "\"{}\" is no number",
                  text);
  return out;
}
std::int64_t whole(const std::string& text) {
  return static_cast<std::int64_t>(number(text));
}

const std::string& key(const LookUp& asked, std::size_t index) {
  TRACESTEP_CHECK(index < asked.keys.size(), "{}.{} has too few keys", asked.source, asked.what);
  return asked.keys[index];
}

double model_figure(const LookUp& asked) {
  const ModelConfig model = preset(key(asked, 0));
  const std::string& what = asked.what;
  if (what == "flops") return forward_flops(model, kPublishedBatch, number(key(asked, 1)));
  if (what == "P") return static_cast<double>(parameter_formula(model));
  if (what == "L") return static_cast<double>(model.layers);
  if (what == "C") return static_cast<double>(model.d_model);
  if (what == "F") return static_cast<double>(model.d_ff);
  if (what == "H") return static_cast<double>(model.heads);
  if (what == "D") return static_cast<double>(model.head_width());
  TRACESTEP_CHECK(what == "V", "a model has no \"{}\"", what);
  return static_cast<double>(model.vocab);
}

double saved_by_course_code(const LookUp& asked) {
  const ModelConfig model = preset(key(asked, 0));
  const std::int64_t per_layer = course_elements_per_layer(
      model, {kPublishedBatch, whole(key(asked, 1))}, static_cast<int>(whole(key(asked, 2))));
  return 4.0 * static_cast<double>(model.layers * per_layer);
}

DType dtype_named(const std::string& name) {
  if (name == "fp16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  TRACESTEP_CHECK(name == "fp32", "no format \"{}\"", name);
  return DType::kF32;
}

double sum_figure(const LookUp& asked) {
  Accumulation sum{.name = {},
                   .count = whole(key(asked, 0)),
                   .term = number(key(asked, 1)),
                   .sum_dtype = dtype_named(key(asked, 2)),
                   .term_dtype = dtype_named(key(asked, 3))};
  if (asked.what == "term") {  // a single term, where nothing is rounded again
    sum.count = 1;
    sum.sum_dtype = DType::kF32;
  }
  const Accumulated out = accumulate(sum);
  return asked.what == "stall" ? static_cast<double>(out.stall) : out.value;
}

double device_figure(const LookUp& asked) {
  const PublishedDevice* device = known_device(key(asked, 0));
  TRACESTEP_CHECK(device != nullptr, "no device \"{}\"", key(asked, 0));
  if (asked.what == "fp32_tflops") return device->fp32_tflops;
  if (asked.what == "bf16_tflops") return device->bf16_tflops;
  if (asked.what == "bandwidth_gb_s") return device->bandwidth_gb_s;
  TRACESTEP_CHECK(asked.what == "usable_gib", "a device has no \"{}\"", asked.what);
  return device->usable_gib;
}

double figure(const LookUp& asked) {
  if (asked.source == "model") return model_figure(asked);
  if (asked.source == "course") return saved_by_course_code(asked);
  if (asked.source == "sum") return sum_figure(asked);
  if (asked.source == "devices") return device_figure(asked);
  if (asked.source == "program") {
    return forward_program_bytes(key(asked, 0), whole(key(asked, 1)), key(asked, 2));
  }
  return published::number_at(asked.source, asked.what, asked.keys);
}

}  // namespace

Quantity claim_figure(const LookUp& asked) {
  return Quantity::exact(figure(asked), fmt::format("{}.{}[{}]", asked.source, asked.what,
                                                    fmt::join(asked.keys, "; ")));
}

}  // namespace tracestep
