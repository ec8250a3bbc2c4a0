#include "lab/measure/sound_row.h"

namespace tracestep::testing {

Json list(std::vector<double> values) {
  Json out = Json::array();
  for (double v : values) out.push_back(v);
  return out;
}

std::vector<double> around(double center, double step) {
  std::vector<double> out;
  for (int i = -4; i <= 4; ++i) out.push_back(center * (1 + step * 0.1 * i));
  return out;
}

Json sound() {
  Json row = Json::object();
  row["size"] = "small";
  row["context"] = 128;
  row["batch"] = 4;
  row["vocab"] = 10000;
  row["mode"] = "step";
  row["precision"] = "fp32";
  row["ops"] = "fused";
  row["device"] = "cpu";
  row["status"] = "ok";
  row["parameters"] = std::int64_t{128625408};
  row["samples_ms"] = list({100, 101, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100});
  row["warmup_ms"] = list({150, 100});
  row["median_ms"] = 100.0;
  row["wall_ms"] = 100.0;
  row["device_span_ms"] = 99.0;
  row["device_busy_ms"] = 97.0;
  row["instrumented_wall_ms"] = 101.0;
  row["peak_bytes"] = std::int64_t{3} << 30;
  row["predicted_peak_bytes"] = std::int64_t{3} << 30;
  row["saved_bytes"] = std::int64_t{1} << 30;
  row["outside_bytes"] = std::int64_t{1} << 28;
  row["major_faults"] = 0;
  row["flops"] = static_cast<std::int64_t>(kSoundFlops);
  row["tflops"] = kSoundFlops / 0.1 * 1e-12;
  row["roof_tflops"] = 8.0;
  row["tokens_per_s"] = 5120.0;
  row["launches"] = 1000;
  row["stopped_by"] = "steps";
  row["profiled"] = false;
  return row;
}

}  // namespace tracestep::testing
