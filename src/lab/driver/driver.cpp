#include "lab/driver/driver.h"

#include <numeric>

namespace tracestep {
namespace {

template <class Spec>
Json with_own(const Spec& spec) {
  Json out = full_key(spec.run);
  const Json own = key_of(spec);
  for (const auto& [name, value] : own.members()) out[name] = value;
  return out;
}

}  // namespace

Json full_key(const RunSpec& run) {
  static const RunSpec usual;
  Json out = Json::object();
  for (const RunField& field : run_fields()) {
    const Json value = field.value(run);
    if (!(value == field.value(usual))) out[field.name] = value;
  }
  return out;
}

Json full_key(const AttentionSpec& spec) {
  return with_own(spec);
}

Json full_key(const OpSpec& spec) {
  return with_own(spec);
}

Json full_key(const CollectiveSpec& spec) {
  return Json::Object{{"op", spec.op}, {"ranks", spec.ranks}, {"bytes", spec.bytes}};
}

Json Driver::key_of_row(const std::string& stage, Json key, std::optional<int> round) const {
  Json out = Json::Object{{"stage", stage}};
  for (const auto& [name, value] : key.members()) out[name] = value;
  if (round) out["round"] = *round;
  return out;
}

std::vector<std::size_t> Driver::chosen(const std::string& /*stage*/, std::size_t count) const {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

std::vector<std::size_t> Driver::order_of(std::size_t count) const {
  return Driver::chosen({}, count);
}

}  // namespace tracestep
