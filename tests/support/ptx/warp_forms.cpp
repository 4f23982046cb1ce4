// Instructions that change the flow of a warp, or exchange values between its lanes. The machine runs those with .sync
// when all lanes that they name are there.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/numeric.hpp"
#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/lanes.hpp"

namespace gradwire::ptx {
namespace {

using Table = std::unordered_map<std::string, Operation>;

// The value of another lane; `mode` is u (up), d (down), b (butterfly) or i (index).
template <char kMode>
void shuffle(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  std::uint64_t from[32];
  std::copy_n(warp.in(i.operand[1]), 32, from);
  const std::uint64_t* const distance = warp.in(i.operand[2]);
  const std::uint64_t* const limits = warp.in(i.operand[3]);
  std::uint64_t result[32] = {};
  std::uint32_t inside = 0;
  for_each_lane(lanes, [&](std::uint32_t l) {
    const auto by = static_cast<std::uint32_t>(distance[l]) & 31;
    const auto segment = static_cast<std::uint32_t>(limits[l] >> 8) & 31;
    const auto clamp = static_cast<std::uint32_t>(limits[l]) & 31;
    const std::uint32_t last = (l & segment) | (clamp & ~segment);
    std::uint32_t other = kMode == 'u'   ? l - by
                          : kMode == 'd' ? l + by
                          : kMode == 'b' ? l ^ by
                                         : (l & segment) | (by & ~segment);
    const bool there =
        kMode == 'u' ? static_cast<std::int32_t>(other) >= static_cast<std::int32_t>(last) : other <= last;
    other = there ? other : l;
    inside |= there ? 1U << l : 0U;
    if ((lanes >> other & 1) == 0) {
      Machine::current->fail(warp, i, l,
                             "a shuffle reads lane " + std::to_string(other) + ", which does not take part");
    }
    result[l] = from[other];
  });
  warp.put(i.operand[0], lanes, result);
  if (i.target != kNone) {
    warp.put_bits(i.target, lanes, inside);
  }
}

void ballot(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  put_same(warp, i, lanes, warp.predicates[i.operand[1]] & lanes);
}
template <char kMode>
void vote(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint32_t set = warp.predicates[i.operand[1]] & lanes;
  const bool is = kMode == 'a' ? set == lanes : kMode == 'y' ? set != 0 : set == 0 || set == lanes;
  warp.put_bits(i.operand[0], lanes, is ? kAllLanes : 0);
}

template <class T, class F>
void reduce(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.in(i.operand[1]);
  T sum{};
  bool first = true;
  for_each_lane(lanes, [&](std::uint32_t l) {
    sum = first ? static_cast<T>(a[l]) : F{}(sum, static_cast<T>(a[l]));
    first = false;
  });
  put_same(warp, i, lanes, static_cast<std::uint32_t>(sum));
}

void active_lanes(Warp& warp, const Instruction& i, std::uint32_t lanes) { put_same(warp, i, lanes, lanes); }

// A product of matrices of halves, 16 x 16 by 16 x 8, and floats that are added, as PTX lays them into registers. The
// instruction adds in an order of its own, so sums must be exact: integers below 2^24.
void multiply_halves(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const auto half = [&](int operand, std::uint32_t lane, std::uint32_t k) {
    return kernels::from_f16(static_cast<std::uint16_t>(warp.in(i.operand[operand])[lane] >> (16 * (k % 2))));
  };
  std::uint64_t result[4][32] = {};
  for (std::uint32_t l = 0; l < 32; ++l) {
    for (std::uint32_t v = 0; v < 4; ++v) {
      const std::uint32_t row = l / 4 + 8 * (v / 2);
      const std::uint32_t column = 2 * (l % 4) + v % 2;
      auto sum = std::bit_cast<float>(static_cast<std::uint32_t>(warp.in(i.operand[10 + v])[l]));
      for (std::uint32_t k = 0; k < 16; ++k) {
        sum += half(static_cast<int>(4 + row / 8 + 2 * (k / 8)), 4 * (row % 8) + k % 8 / 2, k) *
               half(static_cast<int>(8 + k / 8), 4 * column + k % 8 / 2, k);
        if (sum != std::trunc(sum) || std::abs(sum) >= 1 << 24) {
          Machine::current->fail(warp, i, l, "a sum of products that may round");
        }
      }
      result[v][l] = std::bit_cast<std::uint32_t>(sum);
    }
  }
  for (int v = 0; v < 4; ++v) {
    warp.put(i.operand[v], lanes, result[v]);
  }
}

void nothing(Warp&, const Instruction&, std::uint32_t) {}

template <class T>
void reductions(Table& table, const std::string& type) {
  const auto put = [&](const std::string& name, Handler run) {
    table["redux.sync." + name + "." + type] = {"redux.sync." + name + "." + type, "=r,r,r", run, Flow::warp_sync};
  };
  put("add", reduce<T, decltype([](T a, T b) {
                      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
                    })>);
  put("min", reduce<T, decltype([](T a, T b) { return a < b ? a : b; })>);
  put("max", reduce<T, decltype([](T a, T b) { return a > b ? a : b; })>);
  put("and", reduce<T, decltype([](T a, T b) { return static_cast<T>(a & b); })>);
  put("or", reduce<T, decltype([](T a, T b) { return static_cast<T>(a | b); })>);
  put("xor", reduce<T, decltype([](T a, T b) { return static_cast<T>(a ^ b); })>);
}

}  // namespace

void add_flow(Table& table) {
  const auto put = [&](const std::string& name, const char* signature, Handler run, Flow flow) {
    table[name] = {name, signature, run, flow};
  };
  put("bra", "l", nothing, Flow::branch);
  put("bra.uni", "l", nothing, Flow::branch);
  put("ret", "", nothing, Flow::exit);
  put("exit", "", nothing, Flow::exit);
  put("trap", "", nothing, Flow::trap);
  put("nanosleep.u32", "r", nothing, Flow::nap);
  put("shfl.sync.up.b32", "=r,r,r,r,r", shuffle<'u'>, Flow::warp_sync);
  put("shfl.sync.down.b32", "=r,r,r,r,r", shuffle<'d'>, Flow::warp_sync);
  put("shfl.sync.bfly.b32", "=r,r,r,r,r", shuffle<'b'>, Flow::warp_sync);
  put("shfl.sync.idx.b32", "=r,r,r,r,r", shuffle<'i'>, Flow::warp_sync);
  put("vote.sync.ballot.b32", "=r,p,r", ballot, Flow::warp_sync);
  put("vote.sync.all.pred", "=p,p,r", vote<'a'>, Flow::warp_sync);
  put("vote.sync.any.pred", "=p,p,r", vote<'y'>, Flow::warp_sync);
  put("vote.sync.uni.pred", "=p,p,r", vote<'u'>, Flow::warp_sync);
  put("activemask.b32", "=r", active_lanes, Flow::plain);
  put("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "=v4,v4,v2,v4", multiply_halves, Flow::warp_sync);
  put("bar.warp.sync", "r", order_lanes, Flow::warp_sync);
  reductions<std::int32_t>(table, "s32");
  reductions<std::uint32_t>(table, "u32");
  reductions<std::uint32_t>(table, "b32");
  put("bar.sync", "i", nothing, Flow::barrier);
  put("barrier.sync", "i", nothing, Flow::barrier);
  put("barrier.sync.aligned", "i", nothing, Flow::barrier);
  put("bar.red.or.pred", "=p,i,p", nothing, Flow::barrier);
  put("bar.red.and.pred", "=p,i,p", nothing, Flow::barrier);
  put("bar.red.popc.u32", "=r,i,p", nothing, Flow::barrier);
  for (const char* scope : {"cta", "gpu", "sys"}) {
    for (const char* kind : {"acq_rel", "sc"}) {
      put(std::string("fence.") + kind + "." + scope, "", fence, Flow::plain);
    }
  }
  put("membar.cta", "", fence, Flow::plain);
  put("membar.gl", "", fence, Flow::plain);
  put("membar.sys", "", fence, Flow::plain);
}

}  // namespace gradwire::ptx
