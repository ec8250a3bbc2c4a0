// Devices as their makers describe them, which need not be in this machine: data/devices.csv as
// structs, and how to find one by a name that a person types or a driver reports.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/roofline.h"
#include "lab/predict/published_times.h"
#include "lab/report/table.h"

namespace tracestep {

// The part of a link's nominal rate that an all_reduce of 1 GiB reaches
// (bench/results/parallel-h200x2.md).
inline constexpr double kLinkShare = 0.73;

// A device as its vendor describes it. A figure that is 0 or empty is not stated, or the device has
// no such part.
struct PublishedDevice : DevicePeaks {
  std::string words;  // The words of its name without its memory: "h100 sxm sxm5 hbm3".
  std::string form;   // "SXM", "PCIe", "laptop"
  std::string maker;
  std::string link;       // The link between devices of one host, besides PCIe: "NVLink".
  double link_gb_s = 0;   // The nominal rate of `link` in each direction.
  int link_ranks = 0;     // How many devices the link joins.
  double memory_gb = 0;   // The memory as the device's name gives it.
  double usable_gib = 0;  // The memory that a program can use.
  // Where usable_gib comes from: "measured", "reported" by drivers, or "estimated".
  std::string usable_from;
  std::string source;      // Where the peaks come from.
  std::string generation;  // a row of data/generations.csv
  ReachedShares shares;    // The shares that devices of this generation reach.

  double tflops(std::string_view precision) const {
    return precision == "fp32" ? fp32_tflops : bf16_tflops;
  }
  // True if times can be predicted: programs of this build use an NVIDIA GPU.
  bool has_times() const { return maker == "NVIDIA"; }
  // Returns the rate in each direction between `ranks` devices of one host, in GB/s: that of the
  // link, or of PCIe if the link joins fewer devices. 0: a host does not hold that many.
  double host_link_gb_s(int ranks) const;
  // Returns the part of host_link_gb_s() that collectives reach.
  double reached_link_gb_s(int ranks) const;
};

std::span<const PublishedDevice> published_devices();

// The devices that a name may mean. The name of a laptop's device must say "laptop"; if the form is
// missing, the SXM module is meant.
struct DevicesOfName {
  std::vector<const PublishedDevice*> devices;  // Several entries mean that the name is ambiguous.
  // The devices that differ from `devices` only in form or memory.
  std::vector<const PublishedDevice*> others;
};
// Looks up "rtx4090", "a100-80gb", "NVIDIA H100 80GB HBM3": in any case, with or without blanks.
// No device where the name has a word that is none of the device's ("4080 SUPER").
DevicesOfName devices_of_name(std::string_view name);

// Returns the only device that `name` may mean; nullptr: none, or several.
const PublishedDevice* known_device(std::string_view name);
// Returns the devices that `name` may mean; if only their memory tells several apart, the one with
// the most, and the rest as others. Throws Error{kUsage} naming `where`: for none with the nearest
// name, for several others with their names.
DevicesOfName require_device(const About& where, const std::string& name);
std::vector<std::string> published_device_names();

// Makes a table of the known devices, with dense peaks of products by precision, memory, links and
// power, and the source of each figure. A figure that the maker does not state is null.
Table device_table();

// Adds the column "published" to a table of measured ceilings (lab/profile/tables.h): what the
// maker of this device says of bandwidth and products. Adds nothing for unknown devices.
void add_published_peaks(std::string_view device, Table& ceilings);

}  // namespace tracestep
