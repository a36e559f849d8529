"""The plugins that divide a cluster between teams: ElasticQuotas of namespaces, and a tree of queues with fair shares."""
