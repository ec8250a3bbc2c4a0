#include "support/family_models.h"

#include <algorithm>
#include <filesystem>

#include "nn/families.h"
#include "support/paths.h"

namespace tracestep::testing {

std::vector<ModelConfig> family_models() {
  std::vector<ModelConfig> out;
  const std::filesystem::path folder = source_folder() / "tests/golden/families";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    out.push_back(read_model(entry.path()).config);
    out.back().name = entry.path().stem().string();
  }
  std::ranges::sort(out, {}, &ModelConfig::name);
  return out;
}

}  // namespace tracestep::testing
