// A warpgroup of the products with SwiGLU as their epilogue: it multiplies a tile of its own, then
// computes and stores the tile's results.
#pragma once

#include "backends/cuda/gated/tiles.cuh"
#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda::gated_product {

template <class T>
__device__ __forceinline__ Rough rounded(float x) {
  return {to_float(from_float<T>(x))};
}

// Returns element 0 or 1, as `which` says, of the two 16-bit elements in a word.
template <class T>
__device__ __forceinline__ Rough part_of(std::uint32_t pair, int which) {
  T both[2];
  memcpy(both, &pair, sizeof both);
  return {to_float(both[which])};
}

template <class T, bool kGradient>
class GatedConsumer {
  using Layout = GatedLayout<kGradient>;

 public:
  __device__ __forceinline__ GatedConsumer(const GatedParameters& parameters,
                                           std::uint32_t shared_base, int group_index)
      : p_(parameters),
        shared_(shared_base),
        group_(group_index),
        team_row_(thread() / Layout::kTeam * Layout::kTeamRows),
        panels_(shared_base + Layout::kPanelsAt + group_index * Layout::kPanels * Panel::kBytes +
                team_row_ * Panel::kSwizzle) {}

  __device__ __forceinline__ void run() {
    if (group_ == 1) named_arrive(kTurn, 256);
    int turn = 0;  // the group whose turn it is
    const int step = static_cast<int>(gridDim.x) / Layout::kCluster;
    for (int unit = static_cast<int>(blockIdx.x) / Layout::kCluster; unit < p_.units;
         unit += step, turn ^= 1) {
      if (turn != group_) {
        for (int block = 0; block < p_.blocks; ++block) ring_.advance();
        continue;
      }
      const GatedTile tile = gated_tile<kGradient>(p_, unit);
      if constexpr (kGradient) begin_reading(tile);
      named_sync(kTurn + group_, 256);
      multiply();
      named_arrive(kTurn + (group_ ^ 1), 256);
      kGradient ? store_gradients(tile) : store_gated(tile);
    }
    if (leads()) bulk_wait<0>();
    if (turn == group_) named_sync(kTurn + group_, 256);  // nobody is left to have it
  }

 private:
  static constexpr int kTurn = 1;          // the named barrier of group 0's turn; then group 1's
  static constexpr int kTogether = 3;      // that of all threads of group 0; then group 1's
  static constexpr int kHalves = kM / 64;  // halves of a tile, of 64 rows each
  static constexpr int kOfPanel = 32;      // results of a thread in a panel

  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x) & 127; }
  static __device__ __forceinline__ bool leads() { return thread() % Layout::kTeam == 0; }
  __device__ __forceinline__ void sync_team() const {
    if constexpr (kGradient) {
      named_sync(kTogether + group_, Layout::kTeam);
    } else {
      __syncwarp();
    }
  }

  // Sets sum_ to the products of a tile. A stage of the ring is given back once the products of the
  // next stage are under way.
  __device__ __forceinline__ void multiply() {
    int before = -1;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) forget(sum_[half]);
#pragma unroll 1
    for (int block = 0; block < p_.blocks; ++block) {
      barrier_wait(shared_ + Layout::kFull + 8 * ring_.stage, ring_.parity);
      wgmma_fence();
      multiply_stage(shared_ + ring_.stage * Layout::kStageBytes, block > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0) give_back(before);
      before = ring_.stage;
      ring_.advance();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) pin(sum_[half]);
    give_back(before);
  }

  __device__ __forceinline__ void multiply_stage(std::uint32_t stage, bool adds) {
    using A = typename Layout::A;
    using B = typename Layout::B;
    const std::uint32_t weights = stage + A::kBytes;
    const std::uint64_t a = A::along_rows(stage),
                        b = kGradient ? B::down_rows(weights) : B::along_rows(weights);
#pragma unroll
    for (int i = 0; i < kK / 16; ++i) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        Wgmma<T, kN>::template ss<0, kGradient ? 1 : 0>(
            sum_[half], a + A::along_step(i) + half * 64 * A::kSwizzle / 16,
            b + (kGradient ? B::down_step(i) : B::along_step(i)), adds || i > 0);
      }
    }
  }

  __device__ __forceinline__ void give_back(int stage) const {
    const std::uint32_t empty = shared_ + Layout::kEmpty + 8 * stage;
    const int lane = thread() % 32;
    if constexpr (Layout::kCluster > 1) {
      if (lane < Layout::kCluster) barrier_arrive_in_cluster(empty, lane);
    } else {
      if (lane == 0) barrier_arrive(empty);
    }
  }

  __device__ __forceinline__ const float (&panel_of(int half, int panel) const)[kOfPanel] {
    return *reinterpret_cast<const float(*)[kOfPanel]>(sum_[half] + panel * kOfPanel);
  }

  // --- stores SwiGLU of a tile's sums: columns 0 to 63 are gates, columns 64 to 127 up ----------
  __device__ __forceinline__ void store_gated(const GatedTile& tile) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = tile.row + 64 * half;
      const auto &gate = panel_of(half, 0), &up = panel_of(half, 1);
      if (p_.keeps_gate_up) {
        store(gate, &p_.gate_up, tile.column, row);
        store(up, &p_.gate_up, p_.columns + tile.column, row);
      }
      if (!p_.keeps_h) continue;
      float h[kOfPanel];
#pragma unroll
      for (int i = 0; i < kOfPanel; ++i)
        h[i] = scalar::Swiglu()(rounded<T>(gate[i]), rounded<T>(up[i])).v;
      store(h, &p_.result, tile.column, row);
    }
  }

  // Stores a panel by way of two buffers in turn: one is written while the other is copied out.
  __device__ __forceinline__ void store(const float (&x)[kOfPanel], const CUtensorMap* map,
                                        int column, int row) {
    const std::uint32_t panel = panels_ + stores_ * Panel::kBytes;
    stores_ ^= 1;
    if (leads()) bulk_wait_read<1>();
    sync_team();
    store_fragment<T, Panel, 8>(panel, x, 0, thread() % Layout::kTeam);
    fence_async();
    sync_team();
    if (!leads()) return;
    store_box(map, panel, column, row + team_row_, 0, 0);
    bulk_commit();
  }

  // --- gradients: each panel of gate and up is read to one of two buffers, where the gradients of
  // gate and up then replace them; buffer_of() returns a buffer's address
  __device__ __forceinline__ std::uint32_t buffer_of(int panel) const {
    return panels_ + 2 * panel * Panel::kBytes;
  }
  __device__ __forceinline__ std::uint32_t read_of(int panel) const {
    return shared_ + Layout::kRead + 8 * (2 * group_ + panel);
  }
  __device__ __forceinline__ void read(const GatedTile& tile, int half, int panel) const {
    const int row = tile.row + 64 * half, column = tile.column + 64 * panel;
    barrier_arrive_expect(read_of(panel), 2 * Panel::kBytes);
    load_box(buffer_of(panel), &p_.gate_up, read_of(panel), column, row, 0, 0);
    load_box(buffer_of(panel) + Panel::kBytes, &p_.gate_up, read_of(panel), p_.columns + column,
             row, 0, 0);
  }
  // Starts to read the first two panels of gate and up while the other warpgroup multiplies.
  __device__ __forceinline__ void begin_reading(const GatedTile& tile) const {
    if (!leads()) return;
    bulk_wait_read<0>();  // until what the tile before left in the buffers is read
    read(tile, 0, 0);
    read(tile, 0, 1);
  }

  __device__ __forceinline__ void store_gradients(const GatedTile& tile) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int panel = 0; panel < kN / 64; ++panel) {
        barrier_wait(read_of(panel), half);
        put_gradients(panel_of(half, panel), buffer_of(panel));
        fence_async();
        sync_team();
        if (!leads()) continue;
        const int row = tile.row + 64 * half, column = tile.column + 64 * panel;
        store_box(&p_.result, buffer_of(panel), column, row, 0, 0);
        store_box(&p_.result, buffer_of(panel) + Panel::kBytes, p_.columns + column, row, 0, 0);
        bulk_commit();
        if (half + 1 == kHalves) continue;
        bulk_wait_read<0>();
        read(tile, half + 1, panel);
      }
    }
  }

  // Replaces gate and up in `buffer` by their gradients, computed from that of h in registers.
  __device__ __forceinline__ void put_gradients(const float (&dh)[kOfPanel],
                                                std::uint32_t buffer) const {
    const int lane = thread() % 32;
#pragma unroll
    for (int i = 0; i < kOfPanel; i += 2) {  // neighbours in a row
      const int row = thread() / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
      const std::uint32_t at = buffer + Panel::offset(row, i / 4) + lane % 4 * 4;
      const std::uint32_t gate = load_word(at), up = load_word(at + Panel::kBytes);
      const auto of = [&](int which) {
        return scalar::SwigluGrad()(rounded<T>(dh[i + which]), part_of<T>(gate, which),
                                    part_of<T>(up, which));
      };
      const auto first = of(0), second = of(1);
      store_word(at, pack<T>(first.gate.v, second.gate.v));
      store_word(at + Panel::kBytes, pack<T>(first.up.v, second.up.v));
    }
  }

  const GatedParameters& p_;
  std::uint32_t shared_;
  int group_, team_row_;
  std::uint32_t panels_;
  int stores_ = 0;
  Ring<Layout::kStages> ring_;
  float sum_[kHalves][kN / 2];  // 64 rows each
};

}  // namespace tracestep::cuda::gated_product
