// NVTX, header only: without a tool it has no domain to give. Names are registered strings, which
// is what a tool needs to start a capture at a range.
#include "backends/cuda/toolkit/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tracestep::cuda {
namespace {

class NvtxRanges final : public RangeSink {
 public:
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_(domain) {}

  int register_name(std::string_view name) override {
    const std::scoped_lock lock(mutex_);
    const auto [found, is_new] = ids_.try_emplace(std::string(name), static_cast<int>(ids_.size()));
    if (is_new) names_.push_back(nvtxDomainRegisterStringA(domain_, found->first.c_str()));
    return found->second;
  }

  void push(int id) override {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    {
      const std::scoped_lock lock(mutex_);
      event.message.registered = names_[static_cast<std::size_t>(id)];
    }
    nvtxDomainRangePushEx(domain_, &event);
  }

  void pop() override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;
  std::mutex mutex_;
  std::map<std::string, int> ids_;
  std::vector<nvtxStringHandle_t> names_;  // by id
};

}  // namespace

RangeSink* nvtx_ranges() {
  static const auto ranges = []() -> NvtxRanges* {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("tracestep");
    // Lives as long as the process: a tool may still read it at the end.
    return domain == nullptr ? nullptr : new NvtxRanges(domain);
  }();
  return ranges;
}

}  // namespace tracestep::cuda
