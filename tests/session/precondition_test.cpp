// Tests preconditioned encoding: every codec encodes gradients that were added with a scale in units of that scale, at
// every hop, and nothing else of a session changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "scaled_model.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

// Mutation tried: divide() takes the largest value of a tile for twice as large.
TEST(Precondition, AScaleOfOneChangesNoByte) {
  for (const char* algorithm : kAlgorithms) {
    for (const char* codec : kCodecs) {
      run_ranks(world_of(algorithm), [&](const std::shared_ptr<Transport>& transport) {
        auto plain = few_gradients();
        auto scaled = few_gradients();
        const auto scales = scales_like(plain, std::string(algorithm) == "one_shot" ? 3e-5F : 1.0F);  // any constant
        Session one(transport, policy_of(codec, algorithm));
        add_all(one, plain);
        std::vector<std::vector<float>> wanted;
        for (std::uint64_t s = 0; s < 3; ++s) {  // the later steps have residuals
          fill(plain, transport->rank(), s);
          reduce(one, plain);
          wanted.push_back(all_of(plain));
        }
        Session other(transport, policy_of(codec, algorithm));
        add_scaled(other, scaled, scales);
        for (std::uint64_t s = 0; s < 3; ++s) {
          fill(scaled, transport->rank(), s);
          reduce(other, scaled);
          EXPECT_TRUE(same_bytes(all_of(scaled), wanted[s])) << codec << ", " << algorithm << ", step " << s;
        }
      });
    }
  }
}

// Most gradients are as large as their scale. topk must select the few that are larger than theirs.
TEST(Precondition, TopkSelectsWhatMovesTheParameter) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    constexpr std::size_t kCount = 4096;
    std::vector<float> scale(kCount), gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      scale[i] = i % 2 == 0 ? 1.0F : 1.0F / 1024;
      gradient[i] = scale[i] * (i % 100 == 1 ? 8.0F : 1.0F);  // 41 odd elements, all with a small scale
    }
    const std::vector<float> before = gradient;
    Policy policy = policy_of("topk(1%)+bf16", "two_shot");
    policy.defaults.second_hop = CodecSpec::parse("topk(1%)+bf16");
    Session session(transport, policy);
    const TensorId id = session.add("w", view(gradient.data(), kCount), {.scale = scale});
    session.ready(id);
    session.finish();
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(gradient[i], i % 100 == 1 ? before[i] : 0.0F) << i;
    }
  });
}

// Mutation tried: divide() uses the s of the previous element.
TEST(Precondition, WhatIsKeptMovesWithItsScaleWithinATile) {
  constexpr std::size_t kCount = 4096;
  std::vector<std::size_t> order(kCount);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(5);
  std::shuffle(order.begin(), order.end(), random);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<std::vector<float>> results[2];
    for (const bool permuted : {false, true}) {
      std::vector<float> gradient(kCount), scale(kCount);
      Session session(transport, policy_of("topk(2%)+int8", "two_shot"));
      const TensorId id = session.add("w", view(gradient.data(), kCount), {.scale = scale});
      for (std::uint64_t s = 0; s < 4; ++s) {
        std::mt19937 draws(17 * static_cast<std::uint32_t>(s) + 3);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < kCount; ++i) {
          const std::size_t at = permuted ? order[i] : i;
          scale[at] = std::exp(2 * normal(draws));
          gradient[at] = scale[at] * normal(draws) * static_cast<float>(1 + transport->rank());
        }
        session.ready(id);
        session.finish();
        std::vector<float> result(kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          result[i] = gradient[permuted ? order[i] : i];
        }
        EXPECT_GT(std::count_if(result.begin(), result.end(), [](float x) { return x != 0; }), 50);
        results[permuted ? 1 : 0].push_back(result);
      }
    }
    for (std::size_t s = 0; s < results[0].size(); ++s) {
      EXPECT_TRUE(same_bytes(results[0][s], results[1][s])) << "step " << s;
    }
  });
}

// Results and residuals add up to the inputs, with different scales in each step, since residuals are in units of the
// gradient. The last step is exact and includes all residuals. Mutations tried: residuals stay in units of the scale;
// the owner's residuals are not divided by it.
TEST(Precondition, ScalesThatChangeConserveTheSum) {
  for (const char* algorithm : kAlgorithms) {
    for (const std::string codec : {"int8", "int4", "sign", "topk(2%)+int8"}) {
      const int world = world_of(algorithm);
      const std::uint64_t steps = kStepShare > 1 ? 4 : 12;
      run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
        auto gradients = few_gradients();
        auto scales = scales_like(gradients);
        Policy policy = policy_of(codec, algorithm);
        policy.defaults.error_feedback = ErrorFeedback::on;
        Session session(transport, policy);
        add_scaled(session, gradients, scales);
        Sums got(magnitude), wanted(magnitude);
        for (std::uint64_t s = 0; s < steps; ++s) {
          for (int rank = 0; rank < world; ++rank) {
            fill_in_magnitude(gradients, rank, s);
            wanted.add(gradients, 1.0 / world);
          }
          vary(scales, s);
          fill_in_magnitude(gradients, transport->rank(), s);
          if (s + 1 == steps) {
            EXPECT_GT(session.residual_bytes(), 0U);
            session.flush();
          }
          reduce(session, gradients);
          got.add(gradients);
        }
        EXPECT_LE(got.error_against(wanted), 1e-6) << codec << ", " << algorithm;
      });
    }
  }
}

// Reads one value. With weights, loss scales or another dtype on the wire, each step's error is that of the codec, in
// units of the scale.
double value_of(const std::byte* at, DType dtype) {
  if (dtype == DType::f64) {
    double x = 0;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, element_bytes(dtype));
  if (dtype == DType::bf16) {
    bits <<= 16U;
  } else if (dtype == DType::f16 && (bits & 0x7FFFU) != 0) {  // normal numbers
    bits = (bits >> 15U << 31U) | (((bits >> 10U & 31U) + 112U) << 23U) | (bits & 0x3FFU) << 13U;
  }
  return std::bit_cast<float>(bits);
}

constexpr std::pair<const char*, const char*> kHops[] = {
    {"int8", "int8"}, {"int8", "exact"}, {"topk(50%)+exact", "topk(50%)+exact"}, {"topk(50%)+exact", "exact"}};

// Mutation tried: values that topk keeps exactly are units of s in the tensor's own type.
TEST(Precondition, EveryTypeAndWeightIsReducedRight) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const bool weighted : {false, true}) {
      for (const auto& hops : kHops) {
        const auto* const first = hops.first;  // clang 14 cannot capture bindings
        const auto* const second = hops.second;
        run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
          constexpr std::size_t kCount = 9000;
          std::vector<std::byte> memory(kCount * element_bytes(dtype));
          std::vector<float> scale(kCount);
          const auto wanted = [&](std::size_t i) { return i % 2 == 0 ? 1.0 : 1.0 / 64; };
          for (std::size_t i = 0; i < kCount; ++i) {
            scale[i] = static_cast<float>(wanted(i));
          }
          Policy policy = policy_of(first, "two_shot");
          policy.defaults.second_hop = CodecSpec::parse(second);
          Session session(transport, policy);
          const TensorId id = session.add("w", view(memory.data(), kCount, dtype), {.scale = scale});
          if (weighted) {
            session.set_weight(transport->rank() == 0 ? 3 : 1);
          }
          const float sign = transport->rank() == 0 ? 2.0F : -2.0F;  // powers of two, exact in every type
          for (std::size_t i = 0; i < kCount; ++i) {
            const auto x = sign * static_cast<float>(wanted(i));
            const auto bits = std::bit_cast<std::uint32_t>(x);
            const auto b16 = static_cast<std::uint16_t>(bits >> 16U);
            const auto f16 =
                static_cast<std::uint16_t>((bits >> 31U << 15U) | ((((bits >> 23U) & 255U) - 112U) << 10U));
            const double d = x;
            const void* from = dtype == DType::f32    ? static_cast<const void*>(&x)
                               : dtype == DType::f64  ? static_cast<const void*>(&d)
                               : dtype == DType::bf16 ? static_cast<const void*>(&b16)
                                                      : static_cast<const void*>(&f16);
            std::memcpy(memory.data() + i * element_bytes(dtype), from, element_bytes(dtype));
          }
          session.ready(id);
          session.finish();
          // The sum of both ranks; or, if topk left out the other's value, the owner's own value, or nothing.
          const bool all = std::string(first) == "int8";
          const std::vector<double> sums = all        ? std::vector<double>{weighted ? 1.0 : 0.0}  // (3 x 2 - 2) / 4
                                           : weighted ? std::vector<double>{1, 1.5, -0.5, 0}
                                                      : std::vector<double>{0, 1, -1};
          std::size_t there = 0;
          for (std::size_t i = 0; i < kCount; ++i) {
            const double x = value_of(memory.data() + i * element_bytes(dtype), dtype);
            there += x != 0 ? 1 : 0;
            const double in_units = x / wanted(i);
            EXPECT_TRUE(
                std::any_of(sums.begin(), sums.end(), [&](double sum) { return std::abs(in_units - sum) < 0.05; }))
                << i << ": " << in_units << " of a scale";
          }
          EXPECT_GE(there, weighted ? kCount / 2 - 2 : 0) << "topk(50%) sends half of the equal values";
        });
      }
    }
  }
}

// The value 32 is 2^17 in units of its scale, more than f16 holds.
TEST(Precondition, NoTypeOfATensorBoundsWhatIsInOtherUnits) {
  for (const char* second : {"topk(90%)+exact", "exact"}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      constexpr std::size_t kCount = 4096;
      std::vector<std::uint16_t> gradient(kCount, 0x5000);
      std::vector<float> scale(kCount, 1.0F);
      for (std::size_t i = 1; i < kCount; i += 2) {
        scale[i] = 0x1p-12F;
      }
      Policy policy = policy_of("topk(90%)+exact", "two_shot");
      policy.defaults.second_hop = CodecSpec::parse(second);
      Session session(transport, policy);
      const TensorId id = session.add("w", view(gradient.data(), kCount, DType::f16), {.scale = scale});
      session.ready(id);
      EXPECT_FALSE(session.finish().nonfinite);
      EXPECT_GT(std::count(gradient.begin(), gradient.end(), 0x5000), kCount * 8 / 10);
    });
  }
}

// Mutation tried: exact buckets are also separated by scales.
TEST(Precondition, WhatTravelsExactlyDoesNotLookAtIt) {
  for (const char* algorithm : {"two_shot", "dense", "one_shot"}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<std::vector<float>> results;
      for (const bool scaled : {false, true}) {
        auto gradients = few_gradients();
        auto scales = scales_like(gradients);
        vary(scales, 0);
        scales[0].clear();  // one tensor has no scale
        Session session(transport, policy_of("exact", algorithm));
        scaled ? add_scaled(session, gradients, scales) : add_all(session, gradients);
        EXPECT_THAT(session.explain(), ::testing::Not(HasSubstr("by scale")));
        fill(gradients, transport->rank(), 0);
        reduce(session, gradients);
        results.push_back(all_of(gradients));
      }
      EXPECT_TRUE(same_bytes(results[0], results[1]));
    });
  }
}

// Tensors with a scale have buckets of their own, and the results of those without do not change. Mutation tried: one
// bucket holds both.
TEST(Precondition, TensorsWithoutAScaleAreAsBefore) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> results[2];
    for (const bool scaled : {false, true}) {
      std::vector<float> w(3000), b(3000), scale(3000);
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] = b[i] = gradient_value(1, i, transport->rank(), 0);
        scale[i] = i % 3 == 0 ? 100.0F : 0.1F;
      }
      Policy policy = policy_of("int8", "two_shot");
      policy.defaults.second_hop = CodecSpec::parse("int8");
      Session session(transport, policy);
      const TensorId first = session.add("w", view(w.data(), w.size()));
      if (scaled) {
        const TensorId second = session.add("b", view(b.data(), b.size()), {.scale = scale});
        EXPECT_THAT(session.explain(), HasSubstr("by scale"));
        session.ready(second);
      } else {
        EXPECT_THAT(session.explain(), ::testing::Not(HasSubstr("by scale")));
      }
      session.ready(first);
      session.finish();
      results[scaled ? 1 : 0] = w;
    }
    EXPECT_TRUE(same_bytes(results[0], results[1]));
  });
}

TEST(Precondition, ZerosAndNanInAScaleAreHarmless) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = few_gradients();
    auto scales = scales_like(gradients);
    vary(scales, 0);
    for (std::vector<float>& scale : scales) {
      for (std::size_t i = 0; i + 2 < scale.size(); i += 500) {
        scale[i] = 0;
        scale[i + 1] = std::numeric_limits<float>::quiet_NaN();
        scale[i + 2] = std::numeric_limits<float>::infinity();
      }
    }
    std::fill(scales[2].begin(), scales[2].end(), 0.0F);
    Session session(transport, policy_of("topk(2%)+int8", "two_shot"));
    add_scaled(session, gradients, scales);
    Sums got(magnitude), wanted(magnitude);
    for (std::uint64_t s = 0; s < 3; ++s) {
      for (int rank = 0; rank < 2; ++rank) {
        fill_in_magnitude(gradients, rank, s);
        wanted.add(gradients, 0.5);
      }
      fill_in_magnitude(gradients, transport->rank(), s);
      if (s == 2) {
        session.flush();
      }
      EXPECT_FALSE(reduce(session, gradients).nonfinite);
      got.add(gradients);
    }
    EXPECT_LE(got.error_against(wanted), 1e-6);
  });
}

}  // namespace
}  // namespace gradwire::test
