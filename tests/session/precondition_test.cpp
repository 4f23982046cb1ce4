// Preconditioned encoding: gradients that are added with a scale are encoded in its units, by every codec and at every
// hop, and nothing else of a session changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include "model.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Scales = std::vector<std::vector<float>>;

constexpr const char* kCodecs[] = {"bf16", "fp16", "fp8",           "int8",         "int4",
                                   "int2", "sign", "topk(2%)+int8", "topk(2%)+bf16"};

Policy policy_of(const std::string& codec, const std::string& algorithm) {
  Policy policy = Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nalgorithm = \"" + algorithm +
                                "\"\nsmall = \"off\"\n[bucket]\nbytes = \"32KiB\"\n");
  if (algorithm == "hierarchical") {
    policy.tiers.ranks_per_node = 2;
  }
  return policy;
}

constexpr const char* kAlgorithms[] = {"two_shot", "one_shot", "hierarchical"};
int world_of(const std::string& algorithm) { return algorithm == "hierarchical" ? 4 : 2; }

Scales scales_like(const std::vector<Gradient>& gradients, float value = 1) {
  Scales scales;
  for (const Gradient& gradient : gradients) {
    scales.emplace_back(gradient.values.size(), value);
  }
  return scales;
}

// Around the borders of tiles, one empty; several buckets.
std::vector<Gradient> few_gradients() {
  std::vector<Gradient> gradients;
  const std::vector<std::pair<const char*, std::size_t>> shapes{
      {"w", 20000}, {"b", 300}, {"empty", 0}, {"v", 4097}, {"one", 1}};
  for (const auto& [name, count] : shapes) {
    gradients.push_back({name, std::vector<float>(count), {}});
  }
  return gradients;
}

// Over four orders of magnitude,
double magnitude(std::size_t tensor, std::size_t i) {
  return std::exp(4.6 * std::sin(1.3 * static_cast<double>(i) + static_cast<double>(tensor)));
}

// and other ones in each step, alike on all ranks.
void vary(Scales& scales, std::uint64_t step) {
  for (std::size_t t = 0; t < scales.size(); ++t) {
    for (std::size_t i = 0; i < scales[t].size(); ++i) {
      const double change = std::exp(0.5 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(5 * step)));
      scales[t][i] = static_cast<float>(magnitude(t, i) * change);
    }
  }
}

// Gradients of such magnitudes.
void fill_in_magnitude(std::vector<Gradient>& gradients, int rank, std::uint64_t step) {
  fill(gradients, rank, step);
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (std::size_t i = 0; i < gradients[t].values.size(); ++i) {
      gradients[t].values[i] *= static_cast<float>(magnitude(t, i));
    }
  }
}

// Sums over steps, in units of the magnitudes.
class SumsInMagnitude {
 public:
  void add(const std::vector<Gradient>& gradients, double factor = 1) {
    sums_.resize(gradients.size());
    for (std::size_t t = 0; t < sums_.size(); ++t) {
      sums_[t].resize(gradients[t].values.size());
      for (std::size_t i = 0; i < sums_[t].size(); ++i) {
        sums_[t][i] += factor * static_cast<double>(gradients[t].values[i]) / magnitude(t, i);
      }
    }
  }
  [[nodiscard]] double error_against(const SumsInMagnitude& wanted) const {
    double error = 0;
    double norm = 0;
    for (std::size_t t = 0; t < sums_.size(); ++t) {
      for (std::size_t i = 0; i < sums_[t].size(); ++i) {
        error += (sums_[t][i] - wanted.sums_[t][i]) * (sums_[t][i] - wanted.sums_[t][i]);
        norm += wanted.sums_[t][i] * wanted.sums_[t][i];
      }
    }
    return std::sqrt(error / norm);
  }

 private:
  std::vector<std::vector<double>> sums_;
};

void add_scaled(Session& session, std::vector<Gradient>& gradients, const Scales& scales) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    gradients[t].id = session.add(gradients[t].name, view(gradients[t].values.data(), gradients[t].values.size()),
                                  {.scale = scales[t]});
  }
}

StepOutcome reduce(Session& session, const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  return session.finish();
}

std::vector<float> all_of(const std::vector<Gradient>& gradients) {
  std::vector<float> all;
  for (const Gradient& gradient : gradients) {
    all.insert(all.end(), gradient.values.begin(), gradient.values.end());
  }
  return all;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Mutation tried: divide() takes the largest of a tile for twice as large.
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
        for (std::uint64_t s = 0; s < 3; ++s) {  // the later ones with residuals
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

// Of gradients that are as large as their scale says all are alike: what moves the parameter is one of few others.
TEST(Precondition, TopkSelectsWhatMovesTheParameter) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    constexpr std::size_t kCount = 4096;
    std::vector<float> scale(kCount), gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      scale[i] = i % 2 == 0 ? 1.0F : 1.0F / 1024;
      gradient[i] = scale[i] * (i % 100 == 1 ? 8.0F : 1.0F);  // 41 odd ones, all of small scale
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

// Mutation tried: divide() takes s of the element before.
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

// What came out and what is kept is what went in, with other scales in each step: residuals are in units of the
// gradient. The last step travels exactly and brings all of them.
// Mutations tried: residuals stay in units of the scale; the owner's are not divided by it.
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
        SumsInMagnitude got, wanted;
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

// Weights, loss scales, another dtype on the wire: each step's error is that of the codec, in units of the scale.
TEST(Precondition, EveryTypeAndWeightIsReducedRight) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const bool weighted : {false, true}) {
      for (const char* second : {"int8", "exact"}) {
        run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
          constexpr std::size_t kCount = 9000;
          std::vector<std::byte> memory(kCount * element_bytes(dtype));
          std::vector<float> scale(kCount);
          const auto wanted = [&](std::size_t i) { return i % 2 == 0 ? 1.0 : 1.0 / 64; };
          for (std::size_t i = 0; i < kCount; ++i) {
            scale[i] = static_cast<float>(wanted(i));
          }
          Policy policy = policy_of("int8", "two_shot");
          policy.defaults.second_hop = CodecSpec::parse(second);
          Session session(transport, policy);
          const TensorId id = session.add("w", view(memory.data(), kCount, dtype), {.scale = scale});
          if (weighted) {
            session.set_weight(transport->rank() == 0 ? 3 : 1);
          }
          const float sign = transport->rank() == 0 ? 2.0F : -2.0F;  // all are powers of two: in every type
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
          if (dtype != DType::f32) {
            return;  // that no error came, and below that ranks agree
          }
          for (std::size_t i = 0; i < kCount; ++i) {
            float x = 0;
            std::memcpy(&x, memory.data() + i * sizeof x, sizeof x);
            const double mean = weighted ? 1.0 : 0.0;  // (3 x 2 - 2) / 4
            EXPECT_NEAR(x, mean * wanted(i), 0.03 * wanted(i)) << i;
          }
        });
      }
    }
  }
}

// Mutations tried: exact buckets are parted by scales too; what loses nothing is preconditioned.
TEST(Precondition, WhatTravelsExactlyDoesNotLookAtIt) {
  for (const char* algorithm : {"two_shot", "dense", "one_shot"}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<std::vector<float>> results;
      for (const bool scaled : {false, true}) {
        auto gradients = few_gradients();
        auto scales = scales_like(gradients);
        vary(scales, 0);
        scales[0].clear();  // one has none
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

// Those with a scale travel apart from those without, which are then what they were.
// Mutation tried: one bucket for both.
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
    SumsInMagnitude got, wanted;
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

// NaN in a gradient leaves the residuals of its tile as they were, to the bit.
TEST(Precondition, ResidualsOfANonfiniteTileStay) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(4096), scale(4096);
    const auto prepare = [&](std::uint64_t step) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = gradient_value(0, i, transport->rank(), step);
        scale[i] = static_cast<float>(std::exp(3 * std::sin(static_cast<double>(i * (step + 1)))));
      }
    };
    Session session(transport, policy_of("topk(2%)+int8", "one_shot"), {.nonfinite = Nonfinite::propagate});
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()), {.scale = scale});
    prepare(0);
    session.ready(id);
    session.finish();
    const auto residuals = [&] {
      std::ostringstream state;
      session.save(state);
      return state.str().substr(state.str().size() - 4096 * sizeof(float) - 64, 4096 * sizeof(float));
    };
    const std::string before = residuals();
    prepare(1);
    gradient[77] = std::numeric_limits<float>::quiet_NaN();
    session.ready(id);
    EXPECT_TRUE(session.finish().nonfinite);
    EXPECT_EQ(residuals(), before);
  });
}

TEST(Precondition, ASavedStateGoesOnBitByBit) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = few_gradients();
    auto scales = scales_like(gradients);
    const Policy policy = policy_of("topk(2%)+int8", "two_shot");
    const auto steps = [&](Session& session, std::uint64_t from, std::uint64_t until) {
      for (std::uint64_t s = from; s < until; ++s) {
        vary(scales, s);
        fill(gradients, transport->rank(), s);
        reduce(session, gradients);
      }
    };
    Session whole(transport, policy);
    add_scaled(whole, gradients, scales);
    steps(whole, 0, 2);
    std::stringstream state;
    whole.save(state);
    steps(whole, 2, 4);
    const auto wanted = all_of(gradients);
    Session resumed(transport, policy);
    add_scaled(resumed, gradients, scales);
    resumed.load(state);
    steps(resumed, 2, 4);
    EXPECT_TRUE(same_bytes(all_of(gradients), wanted));
  });
}

// A codec that is chosen at run time, between none and others: no residual is lost on the way.
TEST(Precondition, CodecsThatAreChosenLoseNothing) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = few_gradients();
    auto scales = scales_like(gradients);
    Policy policy = Policy::automatic();
    policy.defaults.error_feedback = ErrorFeedback::on;
    policy.small.reset();
    policy.auto_options.window = 2;
    policy.auto_options.dwell = 2;
    Session session(transport, policy);
    add_scaled(session, gradients, scales);
    SumsInMagnitude got, wanted;
    for (std::uint64_t s = 0; s < 12; ++s) {
      for (int rank = 0; rank < 2; ++rank) {
        fill_in_magnitude(gradients, rank, s);
        wanted.add(gradients, 0.5);
      }
      vary(scales, s);
      fill_in_magnitude(gradients, transport->rank(), s);
      if (s == 11) {
        session.flush();
      }
      reduce(session, gradients);
      got.add(gradients);
    }
    EXPECT_EQ(session.residual_bytes(), 0U);
    EXPECT_LE(got.error_against(wanted), 1e-6);
  });
}

std::vector<Error> errors_of(int world, const std::function<void(const std::shared_ptr<Transport>&)>& body) {
  std::vector<Error> errors;
  for (const std::exception_ptr& error : run_ranks_catching(make_inproc_world(world), body)) {
    errors.push_back(error_of([&] {
      if (error) {
        std::rethrow_exception(error);
      }
    }));
  }
  return errors;
}

// From the start, and where one differs later. Mutations tried: the hash is not compared; only the first tensor's is.
TEST(Precondition, RanksWithDifferentScalesAreTold) {
  for (const std::uint64_t from : {0, 70}) {
    const auto errors = errors_of(3, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> w(5000), b(300), w_scale(5000, 2.0F), b_scale(300, 1.0F);
      Session session(transport, policy_of("int4", "two_shot"));
      const TensorId first = session.add("w", view(w.data(), w.size()), {.scale = w_scale});
      const TensorId second = session.add("b", view(b.data(), b.size()), {.scale = b_scale});
      for (std::uint64_t s = 0; s < 150; ++s) {
        if (s == from && transport->rank() == 2) {
          b_scale[299] = 1.0001F;
        }
        session.ready(second);
        session.ready(first);
        session.finish();
        ASSERT_LE(s, from + 65);
      }
    });
    EXPECT_TRUE(std::any_of(errors.begin(), errors.end(),
                            [](const Error& error) { return error.code() == ErrorCode::mismatch; }));
    for (const Error& error : errors) {  // of the others, too: they quote it
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the scale of \"b\""), HasSubstr("differs from rank 0's on rank(s) 2"),
                                      HasSubstr(from == 0 ? "step 0" : "step 128")));
    }
  }
}

TEST(Precondition, ScalesOnSomeRanksOnlyAreAnotherPlan) {
  const auto errors = errors_of(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(5000), scale(5000, 2.0F);
    Session session(transport, policy_of("int4", "two_shot"));
    session.ready(session.add("w", view(w.data(), w.size()),
                              transport->rank() == 0 ? TensorOptions{} : TensorOptions{.scale = scale}));
    session.finish();
  });
  for (const Error& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("with a scale"));
  }
}

TEST(Precondition, WhatCannotBeIsRefused) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(500), scale(499, 1.0F);
    Session session(transport, {});
    const Error error = error_of([&] { session.add("w", view(w.data(), w.size()), {.scale = scale}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("the scale of \"w\" has 499 elements, its gradient 500"));
  });
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(500), scale(500, 1.0F);
    Session session(
        transport,
        Policy::parse("[defaults]\ncodec = \"int8\"\nsync = { async = true, staleness = 1 }\nsmall = \"off\"\n"));
    const TensorId id = session.add("w", view(w.data(), w.size()), {.scale = scale});
    const Error error = error_of([&] { session.ready(id); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"w\""), HasSubstr("has a scale")));
  });
}

}  // namespace
}  // namespace gradwire::test
