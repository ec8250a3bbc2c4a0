#include "lab/published/device_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "embedded/published_files.h"
#include "lab/published/tables.h"
#include "lab/report/columns.h"
#include "lab/report/csv_reader.h"

namespace tracestep {

Table device_table() {
  const std::vector<std::vector<std::string>> rows =
      parse_csv(published_files::kDevicesCsv, "devices.csv");
  const std::vector<std::string> names = {"name",           "fp32_tflops", "bf16_tflops",
                                          "bandwidth_gb_s", "host_gb_s",   "usable_gib"};
  TRACESTEP_CHECK(!rows.empty() && rows.front() == names, "the columns of devices.csv are others");
  Table table{.name = "devices",
              .title = "Devices by their published peaks",
              .columns = {text_column("name"),
                          real_column("fp32_tflops", "fp32", "TFLOP/s", 1, "of products, dense"),
                          real_column("bf16_tflops", "bf16", "TFLOP/s", 1, "likewise"),
                          real_column("bandwidth_gb_s", "bandwidth", "GB/s", 0),
                          real_column("host_gb_s", "PCIe", "GB/s", 1, "each way, nominal"),
                          real_column("usable_gib", "usable", "GiB", 1, "what a program gets")}};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    std::vector<Json> cells{rows[i].front()};
    for (std::size_t c = 1; c < names.size(); ++c) {
      cells.emplace_back(parse_real(names[c], rows[i][c], 0.0));
    }
    table.add_row(std::move(cells));
  }
  table.notes = {
      "B200 without sparsity; the handout of 2026 takes 2,500 TFLOP/s for its bf16 and 80 for its "
      "fp32"};
  return table;
}

void add_published_peaks(std::string_view device, Table& ceilings) {
  const PublishedDevice* known = known_device(device);
  if (known == nullptr) return;
  const std::size_t ceiling = ceilings.index_of("ceiling").value();
  const std::size_t dtype = ceilings.index_of("dtype").value();
  ceilings.columns.push_back(
      real_column("published", "published", "", 1, "by the device's maker, in the same unit"));
  for (std::vector<Json>& row : ceilings.rows) {
    Json peak;
    if (row[ceiling] == Json("bandwidth")) peak = known->bandwidth_gb_s;
    if (row[dtype] == Json("f32")) peak = 1e3 * known->fp32_tflops;
    if (row[dtype] == Json("bf16") || row[dtype] == Json("f16")) peak = 1e3 * known->bf16_tflops;
    row.push_back(std::move(peak));
  }
}

}  // namespace tracestep
