// A profile as a Chrome trace in the form that Kineto writes, which Perfetto and Holistic Trace
// Analysis read: steps, phases, components and ops of the host; calls of the driver; kernels and
// copies of the device with the node and the call they belong to; memory as a counter.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "lab/profile/run.h"

namespace tracestep {

// Makes the trace. `environment`: of this run; the device's properties are taken from it.
std::string chrome_trace(const Profile& profile, const Json& environment);

// Writes the trace, compressed when the file's name ends in ".gz". Throws Error{kOutput}.
void write_chrome_trace(const Profile& profile, const Json& environment,
                        const std::filesystem::path& path);

}  // namespace tracestep
