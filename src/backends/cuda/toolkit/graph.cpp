#include "backends/cuda/toolkit/graph.h"

#include <algorithm>
#include <vector>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"

namespace tracestep::cuda {
namespace {

// True for nodes that a profiler records as well; the others only order work.
bool is_work(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  TRACESTEP_CUDA(cudaGraphNodeGetType(node, &type));
  return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
         type == cudaGraphNodeTypeMemset;
}

std::int64_t count_kernels(cudaGraph_t graph) {
  std::size_t count = 0;
  TRACESTEP_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  TRACESTEP_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  return std::ranges::count_if(nodes, is_work);
}

class Graph final : public CapturedWork {
 public:
  Graph(cudaStream_t stream, cudaGraph_t graph) : stream_(stream), kernels_(count_kernels(graph)) {
    // Kernels keep the priority of the lane that they were captured on.
    TRACESTEP_CUDA(
        cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagUseNodePriority));
  }
  ~Graph() override {
    settle(stream_);  // a running graph must not be destroyed
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() override { TRACESTEP_CUDA(cudaGraphLaunch(executable_, stream_)); }
  std::int64_t kernels() const override { return kernels_; }

 private:
  const cudaStream_t stream_;
  const std::int64_t kernels_;
  cudaGraphExec_t executable_ = nullptr;
};

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using GraphPtr = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

GraphPtr end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  TRACESTEP_CUDA(cudaStreamEndCapture(stream, &graph));
  return GraphPtr(graph);
}

}  // namespace

std::unique_ptr<CapturedWork> capture_graph(cudaStream_t stream,
                                            const std::function<void()>& issue) {
  // Thread-local mode: other threads are not restricted during the capture.
  TRACESTEP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    issue();
  } catch (...) {
    cudaGraph_t broken = nullptr;
    cudaStreamEndCapture(stream, &broken);
    if (broken != nullptr) cudaGraphDestroy(broken);
    cudaGetLastError();  // report the first error only
    throw;
  }
  const GraphPtr graph = end_capture(stream);
  return std::make_unique<Graph>(stream, graph.get());
}

}  // namespace tracestep::cuda
