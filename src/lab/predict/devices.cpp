#include "lab/predict/devices.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "embedded/device_files.h"
#include "lab/report/csv_reader.h"

namespace tracestep {
namespace {

using Words = std::set<std::string, std::less<>>;

constexpr int kHostDevices = 8;  // on the PCIe slots of one host
constexpr std::string_view kLaptop = "laptop", kSxm = "SXM";

// Returns only the letters and digits of a text, in lower case.
std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

Words words_of(const PublishedDevice& device) {
  Words out;
  const std::string& text = device.words;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    out.insert(text.substr(start, end - start));
    start = end + 1;
  }
  const std::string memory = fmt::format("{:.0f}g", device.memory_gb);
  out.insert(memory);
  out.insert(memory + "b");
  return out;
}

// Words that tell no devices apart; all_words() adds those of every device's name.
const Words& no_meaning() {
  static const Words words = {"nvidia", "geforce", "tesla", "amd", "instinct", "gpu"};
  return words;
}

const Words& all_words() {
  static const Words words = [] {
    Words out = no_meaning();
    for (const PublishedDevice& d : published_devices()) out.merge(words_of(d));
    return out;
  }();
  return words;
}

// Splits `text` from `start` into words that are known, the longest first; nullopt: it has others.
std::optional<Words> parted(std::string_view text, std::size_t start) {
  if (start == text.size()) return Words();
  for (std::size_t length = text.size() - start; length > 0; --length) {
    const std::string_view word = text.substr(start, length);
    if (!all_words().contains(word)) continue;
    std::optional<Words> rest = parted(text, start + length);
    if (!rest) continue;
    if (!no_meaning().contains(word)) rest->emplace(word);
    return rest;
  }
  return std::nullopt;
}

std::vector<std::string> names_of(std::span<const PublishedDevice* const> devices) {
  std::vector<std::string> out;
  for (const PublishedDevice* d : devices) out.push_back(d->name);
  return out;
}

// Returns the names of devices, also without their form: "H100 SXM" and "H100".
std::vector<std::string> names_to_suggest() {
  std::vector<std::string> out = published_device_names();
  for (const PublishedDevice& d : published_devices()) {
    const std::size_t form = d.name.find(" " + d.form);
    if (form != std::string::npos) out.push_back(d.name.substr(0, form));
  }
  return out;
}

struct Generation {
  std::string name;
  ReachedShares shares;
  bool multiplies_by_parts = false;
};

Generation read_generation(const CsvRecord& r) {
  return {.name = r.text("generation"),
          .shares = {.products = r.number("products"),
                     .attention = r.number("attention"),
                     .half_context = r.number_or("half_context", 0),
                     .adds_bytes = r.text("adds_bytes") == "yes"},
          .multiplies_by_parts = r.text("by_parts") == "yes"};
}

const Generation& generation_called(const std::string& name) {
  static const std::vector<Generation> all =
      read_records(device_files::kGenerationsCsv, read_generation);
  const auto found = std::ranges::find(all, name, &Generation::name);
  TRACESTEP_CHECK(found != all.end(), "no shares of {}", name);
  return *found;
}

PublishedDevice read_device(const CsvRecord& r) {
  using P = PublishedDevice;
  static constexpr CsvField<P> kFields[] = {{"name", &P::name},
                                            {"fp32_tflops", &P::fp32_tflops, kNeeded},
                                            {"tf32_tflops", &P::tf32_tflops},
                                            {"bf16_tflops", &P::bf16_tflops},
                                            {"fp16_tflops", &P::fp16_tflops},
                                            {"fp8_tflops", &P::fp8_tflops},
                                            {"bandwidth_gb_s", &P::bandwidth_gb_s, kNeeded},
                                            {"host_gb_s", &P::host_gb_s, kNeeded},
                                            {"words", &P::words},
                                            {"form", &P::form},
                                            {"maker", &P::maker},
                                            {"link", &P::link},
                                            {"link_gb_s", &P::link_gb_s},
                                            {"link_ranks", &P::link_ranks},
                                            {"memory_gb", &P::memory_gb, kNeeded},
                                            {"usable_gib", &P::usable_gib, kNeeded},
                                            {"usable_from", &P::usable_from},
                                            {"watts", &P::watts},
                                            {"source", &P::source},
                                            {"generation", &P::generation}};
  P out = filled<P>(r, kFields);
  if (out.generation.empty()) return out;
  const Generation& generation = generation_called(out.generation);
  out.shares = generation.shares;
  out.multiplies_by_parts = generation.multiplies_by_parts;
  return out;
}

}  // namespace

std::span<const PublishedDevice> published_devices() {
  static const std::vector<PublishedDevice> devices =
      read_records(device_files::kDevicesCsv, read_device);
  return devices;
}

double PublishedDevice::host_link_gb_s(int ranks) const {
  if (ranks <= link_ranks) return link_gb_s;
  return ranks <= kHostDevices ? host_gb_s : 0.0;
}

double PublishedDevice::reached_link_gb_s(int ranks) const {
  return kLinkShare * host_link_gb_s(ranks);
}

DevicesOfName devices_of_name(std::string_view name) {
  constexpr std::size_t kLongest = 64;  // characters of a name that can be one
  DevicesOfName out;
  const std::string text = squeezed(name);
  if (text.size() > kLongest) return out;
  const std::optional<Words> asked = parted(text, 0);
  if (!asked || asked->empty()) return out;
  for (const PublishedDevice& d : published_devices()) {
    if (!std::ranges::includes(words_of(d), *asked)) continue;
    if (d.form == kLaptop && !asked->contains(kLaptop)) continue;
    out.devices.push_back(&d);
  }
  const auto is_module = [](const PublishedDevice* d) { return d->form == kSxm; };
  if (std::ranges::any_of(out.devices, is_module)) {
    const auto rest = std::stable_partition(out.devices.begin(), out.devices.end(), is_module);
    out.others.assign(rest, out.devices.end());
    out.devices.erase(rest, out.devices.end());
  }
  return out;
}

const PublishedDevice* known_device(std::string_view name) {
  const DevicesOfName found = devices_of_name(name);
  return found.devices.size() == 1 ? found.devices.front() : nullptr;
}

namespace {

void take_most_memory(DevicesOfName& found) {
  const bool is_one_kind = std::ranges::all_of(found.devices, [&](const PublishedDevice* d) {
    return d->words == found.devices.front()->words;
  });
  if (!is_one_kind) return;
  const auto most = std::ranges::max_element(found.devices, {}, &PublishedDevice::memory_gb);
  std::rotate(found.devices.begin(), most, most + 1);
  found.others.insert(found.others.begin(), found.devices.begin() + 1, found.devices.end());
  found.devices.resize(1);
}

}  // namespace

DevicesOfName require_device(const About& where, const std::string& name) {
  DevicesOfName found = devices_of_name(name);
  if (found.devices.empty()) {
    throw Error(
        ErrorCode::kUsage, where,
        fmt::format("no peaks of \"{}\" are known{}", name, did_you_mean(name, names_to_suggest())),
        fmt::format("known are {}", fmt::join(published_device_names(), ", ")));
  }
  take_most_memory(found);
  if (found.devices.size() > 1) {
    std::vector<std::string> names = names_of(found.devices);
    std::ranges::move(names_of(found.others), std::back_inserter(names));
    throw Error(ErrorCode::kUsage, where,
                fmt::format("\"{}\" may be {} devices", name, names.size()),
                fmt::format("give one of {}", fmt::join(names, ", ")));
  }
  return found;
}

std::vector<std::string> published_device_names() {
  std::vector<std::string> out;
  for (const PublishedDevice& d : published_devices()) out.push_back(d.name);
  return out;
}

}  // namespace tracestep
