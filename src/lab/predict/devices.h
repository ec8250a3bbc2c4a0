// Devices that need not be here, as their makers describe them: data/devices.csv as structs, and
// how a name that a person types, or that a driver reports, finds one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/roofline.h"
#include "lab/predict/published_times.h"
#include "lab/report/table.h"

namespace tracestep {

// An all_reduce of 1 GiB reaches this part of a link's nominal rate
// (bench/results/parallel-h200x2.md).
inline constexpr double kLinkShare = 0.73;

// A device as its vendor describes it. 0 and empty: not stated, or it has none.
struct PublishedDevice : DevicePeaks {
  std::string words;  // words of its name besides its memory: "h100 sxm sxm5 hbm3"
  std::string form;   // "SXM", "PCIe", "laptop"
  std::string maker;
  std::string link;         // between devices of one host, beside PCIe: "NVLink"
  double link_gb_s = 0;     // of `link`, each way, nominal
  int link_ranks = 0;       // devices that it joins
  double memory_gb = 0;     // as its name says
  double usable_gib = 0;    // memory that a program can use
  std::string usable_from;  // "measured", "reported" by drivers, "estimated"
  std::string source;       // of the peaks
  std::string generation;   // a row of data/generations.csv
  ReachedShares shares;     // that generation's

  double tflops(std::string_view precision) const {
    return precision == "fp32" ? fp32_tflops : bf16_tflops;
  }
  // True if programs of this build, which are those of an NVIDIA GPU, can be timed on it.
  bool has_times() const { return maker == "NVIDIA"; }
  // GB/s each way between `ranks` devices of one host: the link's, or PCIe's where that joins
  // fewer; 0: more than a host holds.
  double host_link_gb_s(int ranks) const;
  // The part of host_link_gb_s() that collectives reach.
  double reached_link_gb_s(int ranks) const;
};

std::span<const PublishedDevice> published_devices();

// The devices that a name may mean. A laptop's device has to be called one; where the form is not
// said, the SXM module is meant.
struct DevicesOfName {
  std::vector<const PublishedDevice*> devices;  // several: the name leaves it open
  std::vector<const PublishedDevice*> others;   // told apart by their form or memory alone
};
// Looks up "rtx4090", "a100-80gb", "NVIDIA H100 80GB HBM3": in any case, with or without blanks.
// No device where the name has a word that is none of the device's ("4080 SUPER").
DevicesOfName devices_of_name(std::string_view name);

// The only device that `name` may mean; nullptr: none, or several.
const PublishedDevice* known_device(std::string_view name);
// The devices that `name` may mean; if only their memory tells several apart, the one with the
// most, beside the others. Error{kUsage} naming `where` for none, with the nearest name, and for
// several others, with their names.
DevicesOfName require_device(const About& where, const std::string& name);
std::vector<std::string> published_device_names();

// Data sheets of devices, which need not be here. Rows: devices; columns: dense peaks of products
// by precision, memory, links and power, and where each comes from. A figure that a maker does not
// state is null.
Table device_table();

// Adds the column "published" to a table of measured ceilings (lab/profile/tables.h): what the
// maker of the device with this name says of its bandwidth and products. Nothing for other devices.
void add_published_peaks(std::string_view device, Table& ceilings);

}  // namespace tracestep
