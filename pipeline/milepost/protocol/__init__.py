"""The checkpoint protocol: pure rules, standard library only. See PROTOCOL.md in this folder."""
