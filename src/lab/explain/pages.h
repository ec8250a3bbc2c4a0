// The files of pages/, as cmake/embed.cmake puts them into the library.
#pragma once

#include <string_view>

namespace tracestep::pages {

extern const std::string_view kWarmUpMd;
extern const std::string_view kSynchronisationMd;
extern const std::string_view kStdMd;
extern const std::string_view kLaunchBoundMd;
extern const std::string_view kProfilerOverheadMd;
extern const std::string_view kFlopsMd;
extern const std::string_view kRooflineMd;
extern const std::string_view kGemmShareMd;
extern const std::string_view kFusionMd;
extern const std::string_view kPeakMemoryMd;
extern const std::string_view kSavedForBackwardMd;
extern const std::string_view kResidualStreamMd;
extern const std::string_view kAdamwMd;
extern const std::string_view kOomMd;
extern const std::string_view kCheckpointingMd;
extern const std::string_view kAttentionMemoryMd;
extern const std::string_view kFlashAttentionMd;
extern const std::string_view kDataParallelMd;
extern const std::string_view kParallelLimitsMd;
extern const std::string_view kSoftmaxMd;
extern const std::string_view kMixedPrecisionMd;
extern const std::string_view kAccumulationMd;
extern const std::string_view kAutocastMd;
extern const std::string_view kLossScalingMd;
extern const std::string_view kRmsnormMd;

}  // namespace tracestep::pages
