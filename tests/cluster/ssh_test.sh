#!/usr/bin/env bash
# launch/cluster.sh over real ssh: each of two hosts has a server, to which nothing but a key leads. The losses are those
# of one host, and a host that ssh does not reach ends the job with a word. The server is dropbear, because installing
# Debian's sshd would open this machine to the network.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

PATH=$PATH:/usr/sbin
for program in ssh ssh-keygen dropbear dropbearkey; do
  command -v "$program" > /dev/null || skip "$program is not installed"
done

make_hosts 2
ssh-keygen -q -t ed25519 -N '' -f "$scratch/key"
dropbearkey -t ed25519 -f "$scratch/host_key" > /dev/null 2>&1
# dropbear looks for keys in the home that /etc/passwd names, so its own copy names one of this test.
authorized=$scratch/home/.ssh/authorized_keys
mkdir -p -m 700 "$scratch/home" "$scratch/home/.ssh"
cp "$scratch/key.pub" "$authorized"
chmod 600 "$authorized"
sed "s,^root:.*,root:x:0:0:root:$scratch/home:/bin/bash," /etc/passwd > "$scratch/passwd"
cat > "$scratch/ssh_config" << END
IdentityFile $scratch/key
UserKnownHostsFile $scratch/known_hosts
StrictHostKeyChecking accept-new
BatchMode yes
ConnectTimeout 5
END
export OMPI_MCA_plm_rsh_agent="ssh -F $scratch/ssh_config" PRTE_MCA_plm_ssh_agent="ssh -F $scratch/ssh_config"

listens() { on 0 ssh -F "$scratch/ssh_config" "10.77.0.$(($1 + 1))" true 2> "$scratch/why"; }
for host in 0 1; do
  on "$host" bash -c "mount --bind '$scratch/passwd' /etc/passwd &&
    exec dropbear -F -E -s -m -P '$scratch/pid-$host' -r '$scratch/host_key' -p 22" > "$scratch/sshd-$host.log" 2>&1 &
  soon listens "$host" || fail "no ssh to host $host: $(cat "$scratch/why" "$scratch/sshd-$host.log")"
done

over_ssh() {
  on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 1)" train "${small_run[@]}" --steps 4 --ep 2 --run "$1" \
    > "$scratch/log" 2>&1
}
over_ssh "$scratch/over" || fail "two hosts over ssh: $(cat "$scratch/log")"
grep -q 'on 2 node(s)' "$scratch/log" || fail "the ranks are not on two hosts: $(cat "$scratch/log")"
mpirun_here -n 2 "$MOELOOM_BUILD/moeloom" train "${small_run[@]}" --steps 4 --ep 2 \
  --run "$scratch/one" > "$scratch/log" 2>&1 || fail "one host: $(cat "$scratch/log")"
diff <(losses "$scratch/one") <(losses "$scratch/over") || fail "over ssh: other losses than one host's"
echo "2 hosts over ssh: the losses of one host"

echo > "$authorized"
code=0
over_ssh "$scratch/refused" || code=$?
[[ $code != 0 ]] || fail "trained without a key"
[[ $code != 124 && $code != 137 ]] || fail "hung without a key: $(cat "$scratch/log")"
grep -qi 'permission denied' "$scratch/log" || fail "no word of the key: $(cat "$scratch/log")"
[[ ! -e $scratch/refused ]] || fail "a run has begun without a key"
echo "a host whose key is gone: ended with ssh's word"
