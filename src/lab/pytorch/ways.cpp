#include "lab/pytorch/ways.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace tracestep {
namespace {

constexpr std::size_t kNever = ~std::size_t{0};
constexpr std::int64_t kChunks = 8;

// Returns the index of the event that frees each block; kNever: none does.
std::vector<std::size_t> deaths_of(const AllocationList& list) {
  std::vector<std::size_t> out(list.blocks, kNever);
  for (std::size_t i = 0; i < list.events.size(); ++i) {
    if (list.events[i].bytes == 0) out[list.events[i].block] = i;
  }
  return out;
}

// Edits a list: puts events before others and drops some; apply() numbers blocks without gaps.
class Edit {
 public:
  explicit Edit(const AllocationList& list)
      : list_(list), drops_(list.events.size(), false), next_(list.blocks) {}

  void drop(std::size_t at) { drops_[at] = true; }
  void put_before(std::size_t at, const AllocationEvent& event) { more_[at].push_back(event); }
  std::uint32_t new_block() { return next_++; }

  AllocationList apply() const {
    AllocationList out = list_;
    out.events.clear();
    out.steps.clear();
    std::vector<std::uint32_t> numbers(next_, 0);
    out.blocks = 0;
    const auto add = [&](AllocationEvent event) {
      if (event.bytes != 0) numbers[event.block] = out.blocks++;
      event.block = numbers[event.block];
      out.events.push_back(event);
    };
    for (std::size_t at = 0; at <= list_.events.size(); ++at) {
      while (out.steps.size() < list_.steps.size() && list_.steps[out.steps.size()] <= at) {
        out.steps.push_back(out.events.size());
      }
      if (const auto found = more_.find(at); found != more_.end()) {
        std::ranges::for_each(found->second, add);
      }
      if (at < list_.events.size() && !drops_[at]) add(list_.events[at]);
    }
    return out;
  }

 private:
  const AllocationList& list_;
  std::vector<bool> drops_;
  std::map<std::size_t, std::vector<AllocationEvent>> more_;
  std::uint32_t next_;
};

// The module's path up to its first number: "layers.3" of "layers.3.attn.q"; empty: it has none.
std::string_view numbered_part(std::string_view module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (begin > 0 && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); })) {
      return module.substr(0, end);
    }
    begin = end + 1;
  }
  return {};
}

// One pass through a numbered part of the model, as indices of events: the allocations of its
// forward, the last of these, and the first allocation of its backward.
struct PartPass {
  std::vector<std::size_t> births;
  std::size_t end = 0, backward = kNever;
};

std::vector<PartPass> passes_of(const AllocationList& list) {
  std::map<std::pair<std::size_t, std::string_view>, PartPass> found;
  std::size_t step = 0;
  for (std::size_t at = 0; at < list.events.size(); ++at) {
    while (step < list.steps.size() && list.steps[step] <= at) ++step;
    const AllocationEvent& e = list.events[at];
    const std::string_view part = e.bytes > 0 ? numbered_part(list.name(e.module)) : "";
    if (part.empty()) continue;
    PartPass& pass = found[{step, part}];
    if (e.part == PytorchPart::kForward && pass.backward == kNever) {
      pass.births.push_back(at);
      pass.end = at;
    } else if (e.part == PytorchPart::kRecompute) {
      pass.births.clear();  // it is computed again as it is
    } else if (e.part == PytorchPart::kBackward && pass.backward == kNever) {
      pass.backward = at;
    }
  }
  std::vector<PartPass> out;
  for (auto& [key, pass] : found) {
    if (pass.backward != kNever && pass.births.size() > 1) out.push_back(std::move(pass));
  }
  return out;
}

// Returns the index of the first allocation of backward from event `at` on.
std::size_t next_backward(const AllocationList& list, std::size_t at) {
  while (at < list.events.size() &&
         (list.events[at].bytes == 0 || list.events[at].part != PytorchPart::kBackward)) {
    ++at;
  }
  return at;
}

}  // namespace

AllocationList with_fused_optimizer(const AllocationList& list) {
  Edit edit(list);
  const std::vector<std::size_t> deaths = deaths_of(list);
  // The end of the update that each event lies in.
  std::vector<std::size_t> ends(list.events.size(), 0);
  std::size_t end = list.events.size();
  for (std::size_t at = list.events.size(); at-- > 0;) {
    const AllocationEvent& e = list.events[at];
    if (e.bytes != 0 && e.part != PytorchPart::kOptimizer) end = at;
    ends[at] = end;
  }
  for (std::size_t at = 0; at < list.events.size(); ++at) {
    const AllocationEvent& e = list.events[at];
    if (e.bytes == 0 || e.part != PytorchPart::kOptimizer || deaths[e.block] >= ends[at]) continue;
    edit.drop(at);
    edit.drop(deaths[e.block]);
  }
  return edit.apply();
}

AllocationList with_checkpoints(const AllocationList& list) {
  Edit edit(list);
  const std::vector<std::size_t> deaths = deaths_of(list);
  for (const PartPass& pass : passes_of(list)) {
    std::map<std::uint32_t, std::uint32_t> again;  // the block that is made in backward
    std::vector<std::pair<std::size_t, AllocationEvent>> repeated;
    const std::size_t output = pass.births.back();
    for (std::size_t birth : pass.births) {
      AllocationEvent e = list.events[birth];
      const std::size_t death = deaths[e.block];
      const bool is_saved = death > pass.end;
      if (is_saved && birth != output && death != kNever) {
        edit.put_before(pass.end + 1, {.block = e.block});
        edit.drop(death);
      }
      e.block = edit.new_block();
      e.part = PytorchPart::kRecompute;
      repeated.emplace_back(birth, e);
      const bool dies_in_backward = is_saved && death != kNever && death > pass.backward;
      if (!is_saved) {
        repeated.emplace_back(death, AllocationEvent{.block = e.block});
      } else if (dies_in_backward && birth != output) {
        edit.put_before(death, {.block = e.block});
      } else {
        repeated.emplace_back(pass.end + 1, AllocationEvent{.block = e.block});
      }
    }
    std::ranges::stable_sort(repeated, {}, [](const auto& r) { return r.first; });
    for (const auto& [order, e] : repeated) edit.put_before(pass.backward, e);
  }
  return edit.apply();
}

AllocationList with_gradients_let_go(const AllocationList& list) {
  Edit edit(list);
  const std::vector<std::size_t> deaths = deaths_of(list);
  const auto place_of = [](const AllocationEvent& e) {
    return std::tuple{e.module, e.site, e.op, e.bytes};
  };
  for (std::size_t step = 0; step + 1 < list.steps.size(); ++step) {
    const std::size_t end = list.steps[step + 1];
    std::multiset<decltype(place_of({}))> held;
    for (std::size_t at = list.steps[step]; at < list.events.size(); ++at) {
      const AllocationEvent& e = list.events[at];
      if (e.bytes == 0 || e.part != PytorchPart::kBackward) continue;
      const std::size_t death = deaths[e.block];
      if (at < end && death > next_backward(list, end)) {
        held.insert(place_of(e));
        edit.put_before(end, {.block = e.block});
        if (death != kNever) edit.drop(death);
      } else if (const auto found = held.find(place_of(e)); at >= end && found != held.end()) {
        held.erase(found);  // what was added to the gradient is the gradient now
        if (death != kNever) edit.drop(death);
      }
    }
  }
  return edit.apply();
}

AllocationList with_loss_in_chunks(const AllocationList& list) {
  AllocationList out = list;
  std::int64_t whole = 0;
  for (const AllocationEvent& e : list.events) {
    if (list.name(e.op) == "_log_softmax") whole = std::max(whole, e.bytes);
  }
  for (AllocationEvent& e : out.events) {
    const bool is_of_step = e.part != PytorchPart::kSetup && e.part != PytorchPart::kOptimizer;
    if (whole > 0 && is_of_step && (e.bytes == whole || 2 * e.bytes == whole)) e.bytes /= kChunks;
  }
  return out;
}

std::vector<PytorchWay> pytorch_ways(const AllocationList& list,
                                     const AllocatorSettings& settings) {
  std::vector<PytorchWay> out{{"as it is", "", list, settings}};
  AllocatorSettings expandable = settings;
  expandable.expandable_segments = true;
  if (!settings.expandable_segments) {
    out.push_back({"expandable segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", list,
                   expandable});
  }
  AllocationList all = list;
  const auto add = [&](const char* name, const char* how,
                       const std::function<AllocationList(const AllocationList&)>& change) {
    AllocationList changed = change(list);
    const auto same = [](const AllocationEvent& a, const AllocationEvent& b) {
      return a.bytes == b.bytes;
    };
    if (std::ranges::equal(changed.events, list.events, same)) return;
    all = change(all);
    out.push_back({name, how, std::move(changed), settings});
  };
  add("fused optimizer", "torch.optim.AdamW(…, fused=True)", with_fused_optimizer);
  add("gradients let go", "optimizer.zero_grad(set_to_none=True)", with_gradients_let_go);
  add("loss in chunks", "an eighth of the tokens at a time, with their gradients",
      with_loss_in_chunks);
  add("checkpoint blocks", "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
      with_checkpoints);
  if (out.size() > 2) out.push_back({"all of these", "", std::move(all), expandable});
  return out;
}

}  // namespace tracestep
