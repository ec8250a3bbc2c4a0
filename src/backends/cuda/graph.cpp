#include "backends/cuda/graph.h"

#include "backends/cuda/check.h"

namespace tracestep::cuda {
namespace {

class Graph final : public CapturedWork {
 public:
  Graph(cudaStream_t stream, cudaGraph_t graph) : stream_(stream) {
    // Kernels keep the priority of the lane that they were captured on.
    TRACESTEP_CUDA(
        cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagUseNodePriority));
  }
  ~Graph() override {
    cudaStreamSynchronize(stream_);  // a running graph must not be destroyed
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() override { TRACESTEP_CUDA(cudaGraphLaunch(executable_, stream_)); }

 private:
  const cudaStream_t stream_;
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
