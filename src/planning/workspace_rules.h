// The tables of workspace_bytes(): one per back end, by op name. An op that is not listed needs
// no workspace.
#pragma once

#include <span>
#include <string_view>

#include "planning/needs.h"

namespace tracestep {

struct WorkspaceRule {
  std::string_view op;
  std::int64_t (*bytes)(const OpCall& call, const DeviceTraits& traits);
};

std::span<const WorkspaceRule> cpu_workspace_rules();
std::span<const WorkspaceRule> cuda_workspace_rules();

}  // namespace tracestep
