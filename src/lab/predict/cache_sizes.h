// How much of a device's memory its caches hold.
#pragma once

#include <filesystem>

#include "lab/predict/kernel_work.h"

namespace tracestep {

// Of the CPU, from /sys under `root` or else usual sizes: the second level of as many cores as
// there are threads, and the third. Of a GPU one size is assumed for the cache that all its cores
// share; the rates of a calibration make up for what it lacks.
CacheSizes cache_sizes(const DeviceTraits& traits, const std::filesystem::path& root = "/");

}  // namespace tracestep
