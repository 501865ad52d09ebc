# SPDX-License-Identifier: MIT
set -l commands token explain attach status tunnels top kick drain upgrade wait networks routes headers certificates options
complete -c cellgate -f
for line in 'token make a capability token, or say what one grants' 'explain say what the agent would decide about a request, and why' \
    'attach a terminal in a sandbox' 'status what agent and relay are doing' 'tunnels the open tunnels' 'top tunnels, memory, redials and gaps, again and again' 'kick close one tunnel' \
    'drain end the tunnels of the relay in good order' "upgrade replace the relay's program under open sockets" 'wait until a time has passed, or somebody has stopped listening' \
    'networks the networks of workers, for workers.lst' 'routes the routes in force, as JSON' \
    'headers the headers that the configuration names' 'certificates certificates for HTTP/2 inside of egress' 'options every key of the configuration'
    set -l word (string split -m 1 ' ' -- $line)
    complete -c cellgate -n "not __fish_seen_subcommand_from $commands" -a $word[1] -d $word[2]
end
complete -c cellgate -n '__fish_seen_subcommand_from token explain status tunnels top kick drain upgrade networks routes headers certificates' -l config -r -F
complete -c cellgate -n '__fish_seen_subcommand_from explain status tunnels top' -l json
complete -c cellgate -n '__fish_seen_subcommand_from explain' -l upgrade
complete -c cellgate -n '__fish_seen_subcommand_from explain' -l sandbox -x
complete -c cellgate -n '__fish_seen_subcommand_from explain' -l source -x
complete -c cellgate -n '__fish_seen_subcommand_from explain certificates' -s o -x
complete -c cellgate -n '__fish_seen_subcommand_from certificates' -l check
complete -c cellgate -n '__fish_seen_subcommand_from status tunnels top kick drain upgrade' -l relay -x
complete -c cellgate -n '__fish_seen_subcommand_from status top' -l agent -x
complete -c cellgate -n '__fish_seen_subcommand_from top' -l sort -x -a 'held age idle bytes redials gap'
complete -c cellgate -n '__fish_seen_subcommand_from top' -l filter -x
complete -c cellgate -n '__fish_seen_subcommand_from top' -l interval -x
complete -c cellgate -n '__fish_seen_subcommand_from top' -l once
complete -c cellgate -n '__fish_seen_subcommand_from tunnels token' -l sandbox -x
complete -c cellgate -n '__fish_seen_subcommand_from attach' -l token-file -r -F
complete -c cellgate -n '__fish_seen_subcommand_from attach' -l ca -r -F
complete -c cellgate -n '__fish_seen_subcommand_from attach' -l insecure
complete -c cellgate -n '__fish_seen_subcommand_from wait' -l for -x
complete -c cellgate -n '__fish_seen_subcommand_from wait' -l at-most -x
complete -c cellgate -n '__fish_seen_subcommand_from wait' -l gone -x
complete -c cellgate -n '__fish_seen_subcommand_from token' -l need -x -a 'pty exec agent http mux egress'
for option in port org ttl kid kind
    complete -c cellgate -n '__fish_seen_subcommand_from token' -l $option -x
end
for option in upload download inspect
    complete -c cellgate -n '__fish_seen_subcommand_from token' -l $option
end
for option in manual sample
    complete -c cellgate -n '__fish_seen_subcommand_from options' -l $option
end
for daemon in cellgate-agent cellgate-relay
    complete -c $daemon -s c -r -F
    complete -c $daemon -s o -x
    complete -c $daemon -s t -f
    complete -c $daemon -s V -l version -f
    complete -c $daemon -s h -l help -f
end
complete -c cellgate -n '__fish_seen_subcommand_from upgrade' -l same -d 'the program that runs'
