#include "course/cells.h"

#include <algorithm>

#include <fmt/format.h>

#include "course/ours.h"
#include "nn/config.h"

namespace tracestep {
namespace {

double passes_of(std::string_view pass) {
  if (pass == "forward") return 1;
  return pass == "backward" ? 2 : 3;
}

bool is_same_cell(const PublishedTime& a, const PublishedTime& b) {
  return a.study == b.study && a.device == b.device && a.precision == b.precision &&
         a.size == b.size && a.context == b.context;
}

bool is_same_table(const PublishedTime& a, const PublishedTime& b) {
  return a.study == b.study && a.table == b.table;
}

}  // namespace

PublishedCells::PublishedCells(std::span<const PublishedTime> times)
    : times_(times), facts_(times.size()) {
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const PublishedTime& t = times[i];
    if (t.size.empty()) continue;
    const ModelConfig model = preset(t.size);
    const double context = t.context > 0 ? static_cast<double>(t.context) : 1.0;
    facts_[i].flops = passes_of(t.pass) * forward_flops(model, kPublishedBatch, context);
    facts_[i].layers = static_cast<double>(model.layers);
  }
  for (const PublishedTime& t : times) facts_[index_of(t)].launch_bound = held_up_by(t);
}

const PublishedTime* PublishedCells::in_table(const PublishedTime& t, std::string_view pass) const {
  for (const PublishedTime& other : times_) {
    if (is_same_table(t, other) && is_same_cell(t, other) && other.pass == pass && !other.is_oom) {
      return &other;
    }
  }
  return nullptr;
}

const PublishedTime* PublishedCells::reference(const PublishedTime& t) const {
  const PublishedTime* out = nullptr;
  for (const PublishedTime& other : times_) {
    if (&other == &t || !is_same_cell(t, other) || other.pass != t.pass || other.is_oom) continue;
    if (other.clock != PublishedClock::kWall || other.warmup == 0) continue;
    if (out == nullptr || other.warmup > out->warmup) out = &other;
  }
  return out;
}

const PublishedTime* PublishedCells::in_fp32(const PublishedTime& t) const {
  if (t.precision == "fp32" || t.context == 0) return nullptr;
  for (const PublishedTime& other : times_) {
    if (other.study == t.study && other.precision == "fp32" && other.clock == t.clock &&
        other.size == t.size && other.context == t.context && other.pass == t.pass &&
        !other.is_oom) {
      return &other;
    }
  }
  return nullptr;
}

// Describes another cell that takes as long per layer for more or less work; empty: there is none.
std::string PublishedCells::held_up_by(const PublishedTime& t) const {
  constexpr double kSameTime = 1.12, kMoreWork = 1.4;
  if (t.is_oom || t.size.empty()) return {};
  for (const PublishedTime& other : times_) {
    if (other.study != t.study || other.device != t.device || other.precision != t.precision) {
      continue;
    }
    if (other.size.empty()) continue;
    if (&other == &t || other.is_oom || other.pass != t.pass || other.clock != t.clock) continue;
    if ((other.warmup == 0) != (t.warmup == 0)) continue;
    if (t.context == 0 && !is_same_table(t, other)) continue;
    if (other.context != t.context && other.size != t.size) continue;
    const double mine = t.ms / layers(t), theirs = other.ms / layers(other);
    const double work = flops(t) / layers(t), its = flops(other) / layers(other);
    if (std::max(mine, theirs) > kSameTime * std::min(mine, theirs)) continue;
    if (std::max(work, its) < kMoreWork * std::min(work, its)) continue;
    const std::string where =
        other.context > 0 ? fmt::format("{}/{}", other.size, other.context) : other.size;
    return fmt::format("{:.3g} ms per layer, and {:.3g} ms at {} with {:.2g} times the work", mine,
                       theirs, where, its / work);
  }
  return {};
}

}  // namespace tracestep
