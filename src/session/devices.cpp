#include "session/devices.h"

#include <map>
#include <vector>

#include "base/suggest.h"

namespace tracestep {
namespace {

std::map<std::string, DeviceFactory, std::less<>>& factories() {
  static std::map<std::string, DeviceFactory, std::less<>> all;
  return all;
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
  check_choice("device", device, names);
  return nullptr;
}

}  // namespace tracestep
