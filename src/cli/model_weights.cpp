#include "cli/model_weights.h"

#include "base/log.h"
#include "train/family_files.h"

namespace tracestep::cli {

void take_weights_of_model(const RunGrid& grid, std::filesystem::path& init) {
  if (init == "none") return init.clear();
  const std::filesystem::path folder = grid.combinations().front().model.source;
  if (!init.empty() || find_model(folder.string()) != nullptr || !is_model_folder(folder)) return;
  if (has_family_weights(folder)) {
    init = folder;
    log_info("weights: those in {} (--init none starts from --seed)", folder.string());
  } else {
    log_info("weights: from --seed, as {} has no {}", folder.string(), kFamilyWeights);
  }
}

}  // namespace tracestep::cli
