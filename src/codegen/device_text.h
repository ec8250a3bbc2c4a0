// Device headers embedded as text for run-time compilation (see cmake/embed.cmake).
#pragma once

#include <string_view>

namespace tracestep::device_text {

extern const std::string_view kFunctorsH;          // ops/scalar/functors.h
extern const std::string_view kComputingTypesCuh;  // codegen/device/computing_types.cuh
extern const std::string_view kFusedCuh;           // codegen/device/fused.cuh

}  // namespace tracestep::device_text
