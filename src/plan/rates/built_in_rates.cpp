#include "plan/rates/built_in_rates.hpp"

namespace moeloom {

MachineRates built_in_rates(Index threads) {
  MachineRates rates;
  rates.dense_flops = {2e10, 4e10, 5e10, 5e10};
  for (double& flops : rates.dense_flops) flops *= static_cast<double>(threads);
  rates.attention_flops = 1e10;
  rates.head_flops = 3e10;
  rates.router_tokens = 1e6;
  rates.plan_slots = 1e8;
  rates.elementwise_bytes = 8e9;
  rates.copy_bytes = 8e9;
  rates.updated_elements = 3e8;
  rates.node_message_seconds = 1e-6;
  rates.node_bytes_per_second = 4e9;
  rates.meeting_seconds = 2e-6;
  rates.network_message_seconds = 30e-6;
  rates.network_bytes_per_second = 1.25e9;
  rates.network_tcp = true;
  return rates;
}

}  // namespace moeloom
