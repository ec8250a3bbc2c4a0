#include "session/devices.h"

#include <map>
#include <vector>

#include "base/error.h"
#include "base/suggest.h"

namespace tracestep {
namespace {

std::map<std::string, DeviceFactory, std::less<>>& factories() {
  static std::map<std::string, DeviceFactory, std::less<>> all;
  return all;
}

GroupFactory& group_factory() {
  static GroupFactory make;
  return make;
}

}  // namespace

void register_device(const std::string& name, DeviceFactory make) {
  factories()[name] = std::move(make);
}

std::unique_ptr<Device> make_device(const RunSpec& spec) {
  const std::string& device = spec.place.device;
  const auto found = factories().find(device.substr(0, device.find(':')));
  if (found != factories().end()) return found->second(spec);
  std::vector<std::string> names;
  for (const auto& [name, make] : factories()) names.push_back(name);
  check_choice("device"_field, device, names);
  return nullptr;
}

void register_group(GroupFactory make) {
  group_factory() = std::move(make);
}

std::vector<std::unique_ptr<Communicator>> make_group(Device& first, int ranks) {
  if (!group_factory()) fail_usage("parallel"_field, "nothing connects the ranks of this program");
  return group_factory()(first, ranks);
}

RankDevices make_rank_devices(Device& first, const RunSpec& spec) {
  if (!spec.parallel.is_on() || !first.computes()) return RankDevices(first);
  auto group = make_group(first, spec.parallel.ranks);
  std::vector<std::unique_ptr<Device>> others;
  for (std::size_t i = 1; i < group.size(); ++i) others.push_back(make_device(spec));
  return RankDevices(first, std::move(others), std::move(group));
}

}  // namespace tracestep
