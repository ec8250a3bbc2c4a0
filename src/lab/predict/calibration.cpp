#include "lab/predict/calibration.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/hash.h"

namespace tracestep {
namespace {

constexpr std::string_view kSchema = "tracestep.calibration/5";
constexpr const char* kRemedy = "tracestep predict --calibrate makes a new one";

constexpr KernelClass kClasses[] = {KernelClass::kGemm,       KernelClass::kElementwise,
                                    KernelClass::kReduction,  KernelClass::kAttention,
                                    KernelClass::kGather,     KernelClass::kOptimizer,
                                    KernelClass::kCopy,       KernelClass::kGenerator,
                                    KernelClass::kCollective, KernelClass::kFused};

template <class T>
T named(const Json& text, std::span<const T> values) {
  for (const T& value : values) {
    if (name_of(value) == text.as_string()) return value;
  }
  fail_input("calibration"_field, "unknown name {}", text.as_string());
}

double measured(const Json& number) {
  const double out = number.as_double();
  constexpr double kMost = 1e15;
  if (!std::isfinite(out) || out < 0 || out > kMost) {
    fail_input("calibration"_field, "{} was not measured", out);
  }
  return out;
}

double positive(const Json& number) {
  const double out = measured(number);
  if (out <= 0) fail_input("calibration"_field, "a time of 0 was not measured");
  return out;
}

std::string checksum_of(const Json& content) {
  const std::string text = content.dump();
  return hash_text(std::as_bytes(std::span(text)));
}

Json to_json(const ProductShape& s) {
  return Json::Array{s.m, s.n, s.k};
}

Json to_json(const CalibratedStep::Launch& launch) {
  Json amounts = Json::array();
  for (double x : launch.work.amounts) amounts.push_back(x);
  return Json::Array{launch.kernel, name_of(launch.kernel_class), launch.count, launch.work.us,
                     amounts,       to_json(launch.product)};
}

Json to_json(const CalibratedStep& step) {
  Json kernels = Json::array();
  for (const CalibratedStep::Launch& launch : step.kernels) kernels.push_back(to_json(launch));
  Json out = Json::Object{{"cell", step.key},
                          {"executor", name_of(step.executor)},
                          {"wall_ms", step.wall_ms},
                          {"busy_ms", step.busy_ms},
                          {"issue_ms", step.issue_ms},
                          {"launches", step.launches},
                          {"held_out", step.is_held_out},
                          {"kernels", kernels}};
  if (step.watts > 0) out["watts"] = step.watts;
  return out;
}

Json to_json(const std::vector<MeasuredProduct>& products) {
  Json out = Json::array();
  for (const MeasuredProduct& p : products) {
    out.push_back(Json::Array{p.kernel, to_json(p.shape), p.us});
  }
  return out;
}

ProductShape read_shape(const Json& json) {
  const Json::Array& sizes = json.items();
  if (sizes.size() != 3) {
    fail_input("calibration"_field, "a product has other sizes");
  }
  return {sizes[0].as_int(), sizes[1].as_int(), sizes[2].as_int()};
}

CalibratedStep::Launch read_launch(const Json& json) {
  const Json::Array& items = json.items();
  if (items.size() != 6 || items[4].size() != std::size(kAll<Effort>)) {
    fail_input("calibration"_field, "a launch has other members");
  }
  CalibratedStep::Launch out{.kernel = items[0].as_string(),
                             .kernel_class = named<KernelClass>(items[1], kClasses),
                             .count = items[2].as_int(),
                             .product = read_shape(items[5])};
  out.work.us = positive(items[3]);
  for (std::size_t i = 0; i < out.work.amounts.size(); ++i) {
    out.work.amounts[i] = measured(items[4].items()[i]);
  }
  return out;
}

CalibratedStep read_step(const Json& json) {
  CalibratedStep out{.key = json.at("cell"),
                     .executor = named<ExecutorKind>(json.at("executor"), kAll<ExecutorKind>),
                     .wall_ms = positive(json.at("wall_ms")),
                     .busy_ms = positive(json.at("busy_ms")),
                     .issue_ms = measured(json.at("issue_ms")),
                     .launches = json.at("launches").as_int(),
                     .is_held_out = json.at("held_out").as_bool()};
  if (const Json* watts = json.find("watts")) out.watts = positive(*watts);
  for (const Json& launch : json.at("kernels").items()) {
    out.kernels.push_back(read_launch(launch));
  }
  return out;
}

MeasuredProduct read_product(const Json& json) {
  const Json::Array& items = json.items();
  if (items.size() != 3) {
    fail_input("calibration"_field, "a product has other members");
  }
  MeasuredProduct out{items[0].as_string(), read_shape(items[1]), positive(items[2])};
  if (out.shape.m <= 0 || out.shape.n <= 0 || out.shape.k <= 0) {
    fail_input("calibration"_field, "a product of no size was not measured");
  }
  return out;
}

std::vector<MeasuredProduct> read_products(const Json& json) {
  std::vector<MeasuredProduct> out;
  for (const Json& product : json.items()) out.push_back(read_product(product));
  return out;
}

// Names the members that differ, with both values: "threads 2, here 4".
std::string difference(const Json& file, const Json& here) {
  std::string out;
  for (const auto& [name, value] : here.members()) {
    const Json* found = file.find(name);
    if (found != nullptr && *found == value) continue;
    out += fmt::format("{}{} {}, here {}", out.empty() ? "" : "; ", name,
                       found == nullptr ? "missing" : found->dump(), value.dump());
  }
  return out;
}

Calibration read(const Json& content, bool may_lack_steps) {
  Calibration out{.identity = content.at("identity"),
                  .date_utc = content.at("date_utc").as_string(),
                  .is_asynchronous = content.at("is_asynchronous").as_bool()};
  constexpr DeviceKind kKinds[] = {DeviceKind::kCpu, DeviceKind::kCuda};
  out.kind = named<DeviceKind>(content.at("kind"), kKinds);
  out.caches = {content.at("near_bytes").as_int(), content.at("shared_bytes").as_int()};
  if (const Json* rate = content.find("host_bytes_per_us")) out.host_bytes_per_us = measured(*rate);
  out.products = read_products(content.at("products"));
  out.sized_products = read_products(content.at("sized_products"));
  const ProductTimes whole(out.products);
  for (const Json& step : content.at("steps").items()) out.steps.push_back(read_step(step));
  for (bool is_held_out : {false, true}) {
    const auto found = std::ranges::find(out.steps, is_held_out, &CalibratedStep::is_held_out);
    if (found == out.steps.end() && !may_lack_steps) {
      fail_input("calibration"_field, "steps are missing");
    }
  }
  return out;
}

}  // namespace

std::string text_of(const Calibration& c) {
  Json content = Json::Object{{"schema", kSchema},
                              {"identity", c.identity},
                              {"date_utc", c.date_utc},
                              {"kind", name_of(c.kind)},
                              {"is_asynchronous", c.is_asynchronous},
                              {"near_bytes", c.caches.near_bytes},
                              {"shared_bytes", c.caches.shared_bytes},
                              {"products", to_json(c.products)},
                              {"sized_products", to_json(c.sized_products)},
                              {"steps", Json::array()}};
  if (c.host_bytes_per_us > 0) content["host_bytes_per_us"] = c.host_bytes_per_us;
  for (const CalibratedStep& step : c.steps) content["steps"].push_back(to_json(step));
  return Json(Json::Object{{"checksum", checksum_of(content)}, {"content", content}}).dump() + "\n";
}

Calibration parse_calibration(const std::string& text, const std::string& where,
                              const Json& identity, bool may_lack_steps) {
  Calibration out;
  const auto fault = [&]() -> std::string {
    try {
      const Json file = Json::parse(text, where);
      const Json& content = file.at("content");
      if (file.at("checksum").as_string() != checksum_of(content)) return "the file is damaged";
      if (content.at("schema") != Json(kSchema)) return "it is of another version of tracestep";
      out = read(content, may_lack_steps);
    } catch (const Error& error) {
      return fmt::format("no calibration: {}", error.text());
    }
    const std::string other = difference(out.identity, identity);
    return other.empty() ? other : "it is of another device or build: " + other;
  }();
  if (!fault.empty()) throw Error(ErrorCode::kInput, where, fault, kRemedy);
  return out;
}

std::int64_t multiprocessors_of(const Calibration& calibration) {
  const Json* const count = calibration.identity.find("gpu_multiprocessors");
  return count != nullptr && !count->is_null() ? count->as_int() : 0;
}

Json calibration_identity(const Json& environment, const std::string& device) {
  Json out = Json::object();
  out["device"] = device;
  for (const char* name : {"tool", "build_type", "cpu", "simd", "threads", "huge_pages", "gpu",
                           "gpu_multiprocessors", "gpu_driver", "gemm_library"}) {
    if (const Json* value = environment.find(name)) out[name] = *value;
  }
  return out;
}

}  // namespace tracestep
